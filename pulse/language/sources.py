"""Bind FROM and WHERE: scans, subqueries, and joins on time with the keys that the query equates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from pulse.core.calendar import AllTime, EachDay, EachSession, Periods, Since
from pulse.core.expression import TRUE, Column, Comparison, Expression, all_of, columns_of, conjuncts
from pulse.language.calendar import declared_session, declared_zone, session_code, zone_of
from pulse.language.coalesce import coalesce_calls, is_trivial, with_coalesce
from pulse.language.derivatives import with_derivatives
from pulse.language.errors import known, wrong
from pulse.language.expressions import Binder, bare, flat
from pulse.language.lags import with_lags
from pulse.language.literals import duration, moment
from pulse.language.models import bind_models
from pulse.language.scope import MAX_SOURCES, Attribute, Bound, Context, Scope, WindowExtent, attributes_of
from pulse.language.syntax import SourceClause, StreamWindow
from pulse.operators.node import Node
from pulse.operators.relational.filter import Filter
from pulse.operators.relational.join import Join
from pulse.operators.relational.scan import Scan, as_of

Subquery = Callable[[exp.Expr, Context, str], Bound]
"""Binds a query under an alias: :func:`pulse.language.bind.bind_subquery`, passed in to avoid a circular import."""


def bind_from(select: exp.Select, context: Context, subquery: Subquery) -> tuple[Node, Scope]:
    """Return the node that the select list is evaluated on, filtered by WHERE, and the scope of its names."""
    joins: list[exp.Join] = select.args.get("joins") or []
    sources: list[Bound] = []
    for source in (select.args["from_"].this, *(join.this for join in joins)):
        bound = _source(source, context, subquery, len(sources))
        if bound.alias.casefold() in {other.alias.casefold() for other in sources}:
            raise wrong(
                f"'{bound.alias}' occurs twice in this FROM; give each an alias of its own: {bound.alias} as {bound.alias}2",
                source,
            )
        sources.append(bound)
    conditions = [join.args.get("on") for join in joins]
    where = select.args["where"].this if select.args.get("where") else None
    scope = Scope(context, tuple(sources))
    scope = replace(scope, same=_equated([one for one in (*conditions, where) if one is not None], scope))
    scope = with_lags(select, with_derivatives(select, scope))
    sources = list(scope.sources)
    calls = coalesce_calls(select)
    if calls:
        return _coalesced(calls, scope, conditions, where)
    _refuse_full(joins)
    rest = [] if where is None else list(conjuncts(Binder(scope, "WHERE").predicate(where)))
    node = sources[0].node
    for i, (source, condition) in enumerate(zip(sources[1:], conditions, strict=True)):
        on = [] if condition is None else list(conjuncts(Binder(scope, "ON").predicate(condition)))
        if condition is not None:
            _check_reach(on, scope, i + 2, condition)
        equal_on, on = _key_pairs(on, node, source.node)
        equal_where, rest = _key_pairs(rest, node, source.node)
        node = Join(node, source.node, tuple(dict.fromkeys((*equal_on, *equal_where))), all_of(on))
    return _where(node, rest), scope


def _where(node: Node, predicates: list[Expression]) -> Node:
    predicate = all_of(predicates)
    return node if predicate == TRUE else Filter(node, predicate)


def _coalesced(
    calls: list[exp.Anonymous], scope: Scope, conditions: list[exp.Expr | None], where: exp.Expr | None
) -> tuple[Node, Scope]:
    """Return the sources as one that has a row where any of them has one, filtered by all conditions but those on equal keys."""
    node, scope = with_coalesce(calls, scope)
    clauses = [("ON", condition) for condition in conditions] + [("WHERE", where)]
    predicates = [Binder(scope, clause).predicate(one) for clause, one in clauses if one is not None]
    rest = [one for predicate in predicates for one in conjuncts(predicate) if not is_trivial(one)]
    return _where(node, rest), scope


def _refuse_full(joins: list[exp.Join]) -> None:
    for join in joins:
        if join.args.get("side"):
            raise wrong(
                "a full join has rows where only one side has values, so its columns are chosen by coalesce: select symbol, "
                "coalesce(A.price, B.price) as price from A full join B on (A.symbol = B.symbol)",
                join,
            )


def _source(source: SourceClause, context: Context, subquery: Subquery, place: int) -> Bound:
    if next(context.budget, None) is None:
        raise wrong(f"the query reads more than {MAX_SOURCES} streams and subqueries", source)
    alias_node, window_node = source.args.get("alias"), source.args.get("window")
    this = source.this
    name = this.name if isinstance(this, exp.Identifier) else f"query{place + 1}"
    alias = alias_node.name if alias_node is not None else name
    rules = source.args.get("models") or []
    named = context.named.get(this.name.casefold()) if isinstance(this, exp.Identifier) else None
    if named is not None:
        bound = subquery(named.query, named.context, alias)
    elif isinstance(this, exp.Identifier):
        bound = _scan(source, context, alias_node)
        return _with_as_of(replace(bound, window=_window(window_node, bound.node)), source)
    else:
        bound = subquery(this, context, alias)
    if rules:
        raise wrong(
            "MODEL stands behind a stream; the attributes of a query are modelled already",
            rules[0],
        )
    return _with_as_of(replace(bound, window=_window(window_node, bound.node)), source)


def _with_as_of(bound: Bound, source: SourceClause) -> Bound:
    """Apply the source's AS OF clause to all streams without their own."""
    at = source.args.get("at")
    return bound if at is None else replace(bound, node=as_of(bound.node, moment(at)))


def _scan(source: SourceClause, context: Context, alias_node: exp.Expr | None) -> Bound:
    name = source.this.name
    streams = context.streams
    found = name if name in streams else None
    if found is None:
        alike = [other for other in streams if other.casefold() == name.casefold()]
        found = alike[0] if len(alike) == 1 else None
    if found is None:
        raise wrong(
            f"there is no stream '{name}'; {known(name, streams)}. Bind it with --stream {name}=DIR or streams={{'{name}': …}}",
            source.this,
        )
    alias = alias_node.name if alias_node is not None else found
    stored = streams[found]
    scan = Scan(found, alias, stored)
    bound = Bound(alias, scan, _scanned(scan))
    rules = source.args.get("models") or []
    if rules:
        scan = replace(scan, models=bind_models(rules, Scope(context, (bound,))))
        bound = Bound(alias, scan, _scanned(scan))
    return bound


def _scanned(scan: Scan) -> tuple[Attribute, ...]:
    columns = scan.columns
    names = {column: column[len(scan.alias) + 1 :] for column in (*columns.names, columns.time)}
    return attributes_of(columns, scan.alias, names)


def _window(node: StreamWindow | None, of: Node) -> WindowExtent | None:
    """Return the window on a stream or a query; without a zone or a code it is by the clock of the streams below."""
    if node is None:
        return None
    period = node.args.get("period")
    if period is not None:
        periods = _periods(period, node.args.get("of"), node, of)
        return Since(periods) if node.args.get("since") else periods
    size = duration(node.args["size"])
    advance = node.args.get("advance")
    return size, size if advance is None else duration(advance)


def _periods(period: str, of: exp.Expr | None, node: StreamWindow, below: Node) -> Periods:
    if period == "start":
        return AllTime()
    if period == "day":
        return EachDay(declared_zone([below], node) if of is None else zone_of(of))
    return EachSession(declared_session([below], node) if of is None else session_code(of))


def _equated(conditions: list[exp.Expr], scope: Scope) -> tuple[frozenset[str], ...]:
    """Return groups of columns that conjuncts of ON and WHERE equate: their unqualified name is not ambiguous."""
    groups: list[frozenset[str]] = []
    for condition in conditions:
        for one in flat(condition, exp.And):
            if not isinstance(one, exp.EQ):
                continue
            sides = bare(one.this), bare(one.expression)
            found = [scope.resolve(side) for side in sides if isinstance(side, exp.Column) and side.table]
            pair = frozenset(side.column for side in found if isinstance(side, Attribute))
            if len(found) == 2:
                touched = [group for group in groups if group & pair]
                groups = [group for group in groups if not group & pair]
                groups.append(pair.union(*touched))
    return tuple(groups)


def _check_reach(on: list[Expression], scope: Scope, reach: int, condition: exp.Expr) -> None:
    """Check that an ON names only sources joined by then."""
    later = {one.column: source.alias for source in scope.sources[reach:] for one in source.attributes}
    for name in sorted(set().union(*(columns_of(one) for one in on))):
        if name in later:
            raise wrong(
                f"'{later[name]}' is joined only after this ON; move the condition to its own ON or to WHERE",
                condition,
            )


def _key_pairs(
    predicates: list[Expression], left: Node, right: Node
) -> tuple[list[tuple[str, str]], list[Expression]]:
    """Split predicates into equalities between keys of the two sides, and the others."""
    pairs: list[tuple[str, str]] = []
    rest: list[Expression] = []
    keys_left, keys_right = dict(left.columns.key), dict(right.columns.key)
    for one in predicates:
        if isinstance(one, Comparison) and one.relation == "=":
            a, b = one.left, one.right
            if isinstance(a, Column) and isinstance(b, Column):
                a, b = (b, a) if a.name in keys_right else (a, b)
                if a.name in keys_left and b.name in keys_right and keys_left[a.name] == keys_right[b.name]:
                    pairs.append((a.name, b.name))
                    continue
        rest.append(one)
    return pairs, rest


def shared_window(select: exp.Select, scope: Scope) -> WindowExtent | None:
    """Return the window of an aggregate: that of the sources, which must agree."""
    windows = list(dict.fromkeys(source.window for source in scope.sources if source.window is not None))
    if len(windows) > 1:
        node = select.args["joins"][-1]
        raise wrong(
            "the windows of this FROM differ, so the aggregate has none; put the join in a subquery with a window of its own: "
            "from (select … from … join …)[size … advance …] as name",
            node,
        )
    return windows[0] if windows else None
