"""All domains of generated tasks."""

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
