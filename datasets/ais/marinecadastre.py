"""Read US MarineCadastre AIS: ``MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,…``; times ISO 8601, UTC.

Files since 2025 name the same columns ``mmsi,base_date_time,longitude,latitude,sog,cog,heading,vessel_name,…``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pulse.datasets.ais.common import AisText


@dataclass(frozen=True, kw_only=True)
class AisMarineCadastre(AisText):
    """MarineCadastre AIS, with both generations of names; see :mod:`pulse.datasets.ais.common` for the filters."""

    name = "ais-marinecadastre"
    aliases: ClassVar[Mapping[str, str]] = {
        "mmsi": "mmsi",
        "basedatetime": "t",
        "base_date_time": "t",
        "lat": "lat",
        "latitude": "lat",
        "lon": "lon",
        "longitude": "lon",
        "transceiverclass": "transceiver",
        "transceiver_class": "transceiver",
    }
