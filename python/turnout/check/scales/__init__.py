"""The named scales of the design documents, in document order."""

from turnout.check.scales import (
    dynamic_scatter,
    moe_dispatch,
    moe_re_routing,
    mutual_information,
    sparse_conv,
)
from turnout.check.scales.case import Case, Data, arrays_of

SCALES: list[Case] = [
    *moe_dispatch.cases.cases,
    *sparse_conv.cases.cases,
    *moe_re_routing.cases.cases,
    *dynamic_scatter.cases.cases,
    *mutual_information.cases.cases,
]

__all__ = ["SCALES", "Case", "Data", "arrays_of"]
