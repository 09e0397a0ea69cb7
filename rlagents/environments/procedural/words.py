"""The closed word lists of generated tasks. Every value a user mentions or a tool shows comes from here.

A small vocabulary is the point: a word-level tokenizer of a few hundred tokens covers the family, and what is left to
learn is which tool to call and which words to copy. No word stands for two kinds of thing.
"""

FILES = ("notes", "draft", "report", "plan", "memo", "budget", "diary", "recipe", "letter", "agenda", "essay", "poem")
FOLDERS = ("docs", "work", "home", "trash", "backup", "music", "photos", "archive", "school", "games")
CONTENTS = ("red", "blue", "green", "black", "white", "gold", "silver", "pink", "orange", "purple", "gray", "brown")
PEOPLE = ("Ann", "Bob", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivan", "Jill", "Karl", "Lena")
MESSAGES = ("hello", "thanks", "sorry", "welcome", "later", "yes", "agreed", "soon", "lunch", "meeting")
ISSUES = ("printer", "laptop", "screen", "mouse", "keyboard", "email", "phone", "server", "router", "camera")
RESOLUTIONS = ("fixed", "replaced", "restarted", "updated", "cleaned", "ignored")
DOORS = ("driver", "passenger", "rear_left", "rear_right")
CITIES = (
    "Rivermist",
    "Stonebrook",
    "Maplecrest",
    "Silverpine",
    "Oakendale",
    "Willowbend",
    "Shadowridge",
    "Autumnville",
)
COMPANIES = ("Apple", "Google", "Tesla", "Microsoft", "Nvidia", "Amazon")
SYMBOLS = ("AAPL", "GOOG", "TSLA", "MSFT", "NVDA", "AMZN")
TOKENS = ("mint", "sage", "basil", "thyme", "clove", "cumin")
CARDS = ("visa", "amex", "delta", "maestro")
AIRPORTS = ("RMS", "SBK", "MPC", "SVP", "OKD", "WLB", "SHD", "ATV", "PHV", "GFD")
AIRPORT_CITIES = (*CITIES, "Pinehaven", "Greenfield")
CURRENCIES = ("USD", "RMB", "EUR", "JPY", "INR", "RUB", "MXN")
FARES = ("economy", "business", "first")
# The back-end takes any text for a date, and a written-out one would cost ten tokens.
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
CLIMATES = ("auto", "cool", "heat", "defrost")
SWITCHES = ("on", "off", "engage", "release", "fuel", "Open", "Closed", "Buy", "Sell", "USR")

_LISTS = (FILES, FOLDERS, CONTENTS, PEOPLE, MESSAGES, ISSUES, RESOLUTIONS, DOORS, COMPANIES, SYMBOLS, TOKENS, CARDS)
_MORE_LISTS = (AIRPORTS, AIRPORT_CITIES, CURRENCIES, FARES, DAYS, CLIMATES, SWITCHES)
VALUES = frozenset(word for words in (*_LISTS, *_MORE_LISTS) for word in words)
"""Every word that may stand between quotes."""

TOKEN_PATTERN = r" ?[A-Za-z_]+|\d| ?[^A-Za-z_\d\s]+|\s"
"""Splits the family's texts into a small closed set: words, single digits, runs of punctuation marks.

The pieces of a text are its whole text, so a tokenizer that splits like this is lossless. Values stand in quotes
wherever they occur and so are one and the same token in the user's words, in a result and in a call.
"""
