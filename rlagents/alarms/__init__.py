"""What tells that a run goes wrong: numbers of its steps, each with a bound, watched while it runs."""

from rlagents.alarms.alarm import Alarm, Reading, Standing, look
from rlagents.alarms.watch import ALARM_NAMES, AlarmError, Raised, Watch, make_watch

__all__ = ["ALARM_NAMES", "Alarm", "AlarmError", "Raised", "Reading", "Standing", "Watch", "look", "make_watch"]
