"""All domains of generated tasks."""

from collections.abc import Sequence

from rlagents.environments.procedural.files import FILES_DOMAIN
from rlagents.environments.procedural.maths import MATHS_DOMAIN
from rlagents.environments.procedural.messages import MESSAGES_DOMAIN
from rlagents.environments.procedural.tickets import TICKETS_DOMAIN
from rlagents.environments.procedural.trading import TRADING_DOMAIN
from rlagents.environments.procedural.travel import TRAVEL_DOMAIN
from rlagents.environments.procedural.vehicle import VEHICLE_DOMAIN

DOMAINS = (
    FILES_DOMAIN,
    MESSAGES_DOMAIN,
    TICKETS_DOMAIN,
    VEHICLE_DOMAIN,
    TRAVEL_DOMAIN,
    TRADING_DOMAIN,
    MATHS_DOMAIN,
)


def domain_numbers(back_ends: Sequence[str]) -> list[int]:
    """Where the domains of these back-ends stand in ``DOMAINS``. Raises ValueError for an unknown name."""
    known = [domain.back_end for domain in DOMAINS]
    if unknown := sorted(set(back_ends) - set(known)):
        raise ValueError(f"no domain of generated tasks has the back-end {unknown[0]!r}; there are {', '.join(known)}.")
    return [known.index(name) for name in back_ends]
