"""Attach to functions of projected positions the distortion of the projection (:class:`pulse.core.plane.Plane`)."""

from __future__ import annotations

from pulse.core.expression import Expression, Function, transform
from pulse.core.plane import Plane
from pulse.operators.functions.registry import rules_of
from pulse.operators.node import Node
from pulse.operators.node import transform as transform_plan
from pulse.operators.relational.scan import scans


def attach_planes(plan: Node) -> Node:
    """Attach the plane of the streams read to functions of positions; of several planes, one that is no better than any.

    The reach of pairs is extended by the stretch of the plane. Where no stream has a plane nothing changes.

    >>> from pulse.core.columns import Columns
    >>> from pulse.core.expression import Column, Comparison, Constant
    >>> from pulse.operators.relational.filter import Filter
    >>> from pulse.operators.relational.scan import Scan
    >>> scan = Scan("S", "S", Columns((), ("x", "y"), plane=Plane(0.01, 1.0)))
    >>> distance = Function("distance", (Column("S.x"), Column("S.y"), Constant(0), Constant(0)))
    >>> attach_planes(Filter(scan, Comparison("<", distance, Constant(5)))).predicate.left.plane.distortion
    0.01
    """
    plane = plane_of(plan)
    if plane is None:
        return plan

    def change(e: Expression) -> Expression:
        return rules_of(e).in_plane(e, plane) if isinstance(e, Function) else e

    def changed(node: Node) -> Node:
        node = node.stretch_pairs(1.0 + plane.distortion)
        node = node.change_predicates(lambda e: transform(e, change))
        return node.change_outputs(lambda e: transform(e, change))

    return transform_plan(plan, changed)


def plane_of(plan: Node) -> Plane | None:
    """Return the plane of the streams that a plan reads, of several one that is no better than any; None without one."""
    planes = [one.stored.plane for one in scans(plan) if one.stored.plane is not None]
    if not planes:
        return None
    return Plane(
        max(one.distortion for one in planes),
        max(one.beyond for one in planes),
        max(one.west for one in planes),
        min(one.east for one in planes),
        max(one.south for one in planes),
        min(one.north for one in planes),
        max(one.bend for one in planes),
        planes[0].crs if len({one.crs for one in planes}) == 1 else "",
    )
