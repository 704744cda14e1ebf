"""The wordings around amounts of time, as patterns: what makes a range, a length, a part of a video.

All are for text that `_amounts.normal` prepared. Those that end in `$` are searched for in what stands before
an amount; the others match what follows it, or what stands between two.
"""

from __future__ import annotations

import re

from diagnostics.data.sources._amounts import UNIT_WORD

__all__ = [
    "AFTER_VIDEO",
    "AND",
    "AT",
    "AWAY",
    "BETWEEN",
    "CLOSED",
    "COMMA",
    "EDGE",
    "END",
    "EVENT_BEFORE",
    "FRACTION",
    "FROM",
    "FROM_THE_START",
    "LABEL_WORD",
    "LATE_TO",
    "LENGTH_AFTER",
    "LENGTH_BEFORE",
    "LENGTH_CLAUSE",
    "LENGTH_OF_VIDEO",
    "LENGTH_THEN_PLACE",
    "LENGTH_WORD",
    "LONG",
    "MARK",
    "NEXT",
    "OF_THE_VIDEO",
    "OPEN",
    "OPENED",
    "PART",
    "PARTS",
    "PART_AFTER",
    "PLACE_THEN_LENGTH",
    "POSITIONS",
    "RATIO_AFTER",
    "RATIO_BEFORE",
    "RELATIVE",
    "START",
    "TAIL",
    "THE",
    "TO",
    "TO_THE_END",
    "TWO_EDGES",
    "UNIT_BEHIND",
    "WINDOW_WORD",
]

_VIDEO = (
    r"(?:(?:the|this|that|our|a|whole|entire|full|complete|given|shown|surgical|endoscopic|capsule"
    r"|original)\s+)*"
    r"(?:video(?:\s+(?:clip|recording|sequence|footage|timeline|stream))?|recording|procedure|surgery"
    r"|operation|examination|exam|footage|clip|film|sequence|colonoscopy|endoscopy|intervention|timeline|stream)"
    r"(?:'s\s+(?:total\s+)?(?:length|duration|timeline|running time))?"
)
# What may follow a complete phrase: otherwise "clip" is the first word of "clip applier".
TAIL = (
    r"(?=\s*(?:[,.;:?!)\]>\"]|$|(?:which|what|where|who|how|is|are|was|were|does|do|did|can|name|identify"
    r"|determine|select|choose|the|and|that|when|while|in|before)\b))"
)
_OF_VIDEO = (
    rf"(?:of|in|into|through|throughout|from|since|after)\s+"
    rf"(?:(?:the\s+)?(?:(?:total|whole)\s+)?(?:length|duration|course|timeline|way|start|beginning|onset)"
    rf"\s+(?:of|through|into)\s+)?{_VIDEO}{TAIL}"
)
AFTER_VIDEO = rf"(?:after|since)\s+{_VIDEO}"
PART = (
    r"(?:time\s+)?(?:window|segment|interval|period|clip|range|span|portion|section|part|stretch|excerpt"
    r"|slice)s?"
)
MARK = r"(?:[\s-]*(?:mark|point|timestamp)s?\b)?"
_LEAD = (
    r"(?:\s|[=(\[<:@]|\b(?:the|t|time(?:\s+points?)?|timestamps?|approximately|approx\.?|about"
    rf"|around|roughly|exactly|is|of|queried|given|seconds?|minutes?|hours?|marked|{PART})\b)*"
)
_STARTING = r"(?:start(?:s|ing|ed)?|begin(?:s|ning)?|commenc(?:es|ing))(?:\s+(?:at|from|on|by))?"
_ENDING = r"(?:end(?:s|ing|ed)?|finish(?:es|ing|ed)?|stop(?:s|ping|ped)?)(?:\s+(?:at|on|by))?"

TO = re.compile(rf"{MARK}[>)\]\"]?\s*,?\s*(?:-|to|until|till|through|thru|up to)\s*{_LEAD}")
LATE_TO = re.compile(rf"{MARK}[>)\]\"]?\s*,?\s*(?:until|till|through|thru|up to)\b")
AND = re.compile(rf"{MARK}\s*,?\s*(?:and|&)\s*{_LEAD}")
COMMA = re.compile(rf"\s*[,;]\s*{_LEAD}")
END = re.compile(rf"{MARK}\s*[,;]?\s*(?:and\s+)?{_ENDING}{_LEAD}")

BETWEEN = re.compile(rf"\bbetween\b{_LEAD}$")
FROM = re.compile(rf"(?:\b(?:from|{_STARTING}))\b{_LEAD}$")
START = re.compile(rf"\b{_STARTING}{_LEAD}$")
WINDOW_WORD = re.compile(
    rf"(?:\b(?:between|from|during|at|compare|spans?|spanning|covers?|covering|versus|vs\.?"
    rf"|{_STARTING}|{PART})\b"
    rf"|(?:^|[.?!:]\s*|:\d\d\s*|\d\s*(?:{UNIT_WORD})\s*)\(|\[){_LEAD}$"
)
LABEL_WORD = re.compile(rf"\b(?:in|within|over)\b{_LEAD}$")
THE = re.compile(r"\b(?:the|this|that|given|queried)\s+$")
OPENED = re.compile(r"[\[(<]\s*$")
CLOSED = re.compile(rf"\s*(?:{UNIT_WORD})?\s*[\])>]")
UNIT_BEHIND = re.compile(
    rf"\s*(?:[\])>]\s*(?P<behind>{UNIT_WORD})(?![\w/])|\((?:in\s+)?(?P<inside>{UNIT_WORD})\))"
)
PART_AFTER = re.compile(rf"[\s-]*(?:long\s+)?{PART}\b")

LENGTH_BEFORE = re.compile(
    r"\b(?:take[sn]?|took|taking|last(?:s|ed|ing)?|for|every|spen[dt]s?|spending|requir(?:es?|ed|ing)"
    r"|needs?|needed|than|only|by|wait(?:s|ed|ing)?|paus(?:es?|ed|ing)|per|duration|length|aged?"
    r"|(?:an?|every|each|at)\s+(?:\w+\s+)?(?:intervals?|periods?|pauses?|breaks?|windows?|clips?"
    r"|segments?)\s+of)"
    r"(?:\s|[:=]|\b(?:of|is|was|between|from|about|around|at least|at most)\b)*$"
)
LENGTH_CLAUSE = re.compile(
    r"\bhow long\b[^.;:?]*$"
    r"|\b(?:durations?|takes?(?!\s+place)|taken|took|lasts|lasted|lasting|longer|shorter)\b[^,.;:?]*$"
)
LENGTH_AFTER = re.compile(
    r"[\s-]*(?:long|in (?:total|duration|length|all)|each|apart|per|altogether|or (?:more|less)|intervals)\b"
)
EVENT_BEFORE = re.compile(
    r"\b(?:once|after|(?<!the )following|upon|when|relative to|since)\b[^.?!]*"
    r"\b(?:begins?|began|starts|started|onset|ends|ended|appears|appeared|enters|entered|inserted"
    r"|introduced)\b[^.?!]*$"
)
RELATIVE = re.compile(
    rf"{MARK}\s*(?:(?:after|before|following|preceding|prior to|into|of|since|past|later|earlier|post)\b"
    r"|from\s+(?:the\s+)?(?:start|beginning|onset)\b)"
)
# Beside the window, not in it.
AWAY = re.compile(
    r"\b(?:excluding|except|outside|apart from|other than|before|after|(?<!the )following|prior to"
    r"|preced(?:es?|ed|ing)|follow(?:s|ed)?|succeed(?:s|ed|ing)?)\b"
    r"(?:\s|[,:(\[]|\b(?:of|for|the|this|that|1|what|is|was|phase|step|region|instrument|seen|shown"
    rf"|visible|performed|from|between|during|in|at|within|time|{PART})\b)*$"
)
NEXT = re.compile(
    r"\b(?:next|previous|preceding|subsequent)\s+(?:\w+\s+)?(?:phase|step|region|instrument|section|action)\b"
    r"|\b(?:comes?|came|happens?|occurs?|is|was|performed|follows?|begins?|starts?)\s+"
    r"(?:\w+ly\s+|right\s+|just\s+)?(?:next|afterwards?|thereafter|beforehand)\b"
)
OF_THE_VIDEO = re.compile(rf"(?:\s*{MARK}|[\s-]*{PART})\s*{_OF_VIDEO}")
RATIO_BEFORE = re.compile(r"\b(?:ratios?|dilut\w*|scale|odds|titers?|titres?|proportions?)\b[^.?!,;]*$")
RATIO_AFTER = re.compile(r"\s*(?:ratio|dilution|scale|odds)\b")
LENGTH_OF_VIDEO = re.compile(r"\b(?:duration|length|long|lasts|lasting)\b\s*(?:of|is|was|:|=|\()?\s*$")
LONG = re.compile(r"[\s-]*long\b")

AT = re.compile(rf"(?:\b(?:at|around|near|about)\b|@){_LEAD}$")
OPEN = re.compile(
    rf"\b(?:after|before|until|till|since|from|by|prior to|past|beyond|following|up to)\b{_LEAD}$"
)
TWO_EDGES = re.compile(r"\b(?:first|initial|opening|last|final|closing)\s+(?:and|or)\s+(?:the\s+)?$")
EDGE = re.compile(r"\b(?P<edge>first|initial|opening|last|final|closing)\s+$")
TO_THE_END = re.compile(
    rf"{MARK}\s*(?:-|to|until|till|through|up to|and)\s*(?:the\s+)?(?:very\s+)?end\b"
    rf"(?:\s+of\s+{_VIDEO}{TAIL}|(?!\s+of\b)(?=\s*[,.;:?!]|$))"
)
FROM_THE_START = re.compile(
    rf"\b(?:from|between)\s+(?:the\s+)?(?:very\s+)?(?:beginning|start)(?:\s+of\s+{_VIDEO})?\s+"
    rf"(?:to|until|till|through|up to|and)\s*{_LEAD}$"
)
FRACTION = re.compile(
    rf"\b(?P<which>first|second|middle|third|fourth|last|final|initial)\s+"
    rf"(?P<part>half|third|quarter)\s+of\s+"
    rf"(?:the\s+(?:length|duration)\s+of\s+)?{_VIDEO}(?P<whole>{TAIL})?"
)
PARTS = {"half": 2, "third": 3, "quarter": 4}
POSITIONS = {"first": 0, "initial": 0, "second": 1, "third": 2, "fourth": 3}

_JUST = r"(?:that\s+|which\s+)?(?:immediately\s+|right\s+|directly\s+|just\s+)?"
_NOUN = rf"(?:[\s-]*(?:long\s+)?{PART}\b)?\s*,?\s*"
LENGTH_THEN_PLACE = {
    "after": re.compile(rf"{_NOUN}{_JUST}(?:after|following|from|{_STARTING})\s+{_LEAD}"),
    "before": re.compile(rf"{_NOUN}{_JUST}(?:before|preceding|prior to|leading up to|{_ENDING})\s+{_LEAD}"),
    "centre": re.compile(rf"{_NOUN}{_JUST}cent(?:red|ered|re|er)\s+(?:at|on|around)\s+{_LEAD}"),
}
LENGTH_WORD = re.compile(r"\b(?:in|during|within|for|over|the|a|an|first|next|this|that)\s+$")
PLACE_THEN_LENGTH = re.compile(
    rf"{MARK}\s*,?\s*(?:(?:and\s+)?(?:for|lasting|lasts|with a (?:length|duration) of)\s+"
    rf"(?:the\s+)?(?:next\s+|following\s+)?"
    rf"|(?:and|plus|over|during|in)\s+(?:the\s+)?(?:next|following)\s+|\+\s*)"
)
