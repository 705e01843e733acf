"""One notation for what texts write in many: LaTeX, markup, digits and signs of all scripts; numbers with units."""

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

_SIGNS = str.maketrans(
    dict.fromkeys("−﹣－‐‑", "-") | dict.fromkeys("∕⁄", "/") | dict.fromkeys("·⋅", "×") | dict.fromkeys("’‘", "'")
    | dict.fromkeys("“”„«»「」", '"') | dict.fromkeys("\u200b\u200e\ufe0f") | {"٫": ".", "٬": ",", "٪": "%", "。": ". "}
)  # fmt: skip
_TEXT = r"\\(?:text\w*|math\w*|operatorname|mbox)\s*\{([^{}]*)\}", r"\1"
_LATEX = (
    (r"\\(?:left|right|displaystyle|quad)\b\s?", ""), (r"\{,\}", ","), (r"\\[,;:! ]|(?<!\\)~(?!\d)", " "), _TEXT, _TEXT,
    (r"\\(?:times|cdot)\b", "×"), (r"\\pm\b", "±"), (r"\\pi\b", "π"), (r"\^?\{?\\(?:circ|degree)\b\}?", "°"),
    (r"\\(?=[%$])", "\0"), (r"(?<=\d)\s*\\[dtc]?frac", r" \\frac"), (r"\\[dtc]?frac\s*(\d)\s*(\d)", r"\1/\2"),
    (r"\\[dtc]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}", r"\1/\2"), (r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)"),
    (r"\\[dtc]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}", r"(\1)/(\2)"), (r"([\^_])\s*\{\s*([-+]?\w+)\s*\}", r"\1\2"),
    (r"\\[()\[\]]", " "), (r"(?<![\0\w])\$\$?(?=\S)([^$\n]+?)(?<=\S)(?<!\0)\$\$?(?!\d)", r"\1"), (r"\0", ""),
)  # fmt: skip
_MARKUP = (
    (r"~~[^~\n]+~~\s?(?=\S)|<del>[^<\n]+</del>", ""),
    (r"(?i)<br\s*/?>|</(?:p|div|li|h\d)>", "\n"), (r"(?i)</?(?:p|div|li|b|strong|i|em|u|code|span|h\d)>", ""),
    (r"(?i)<sup>(\w+)</sup>", r"^\1"), (r"!?\[([^\[\]\n]*)\]\([^()\s]*\)", r"\1"),
    (r"\*\*|`+|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)", ""), (r"(?<!\w)_(?=\S)([^_\n]+?)(?<=\S)_(?!\w)", r"\1"),
    (r"(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])", r"\1"),
)  # fmt: skip
_DASHES = (
    (r"(?<![\w)%\s])[–‒](?=[.\d$€£])|(?<=[=:(\s])[–‒](?=[.\d$€£])", "-"),
    (r"√\s?\(?(\w+)\)?", r"sqrt(\1)"),
)
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_UPPER = re.compile(r"(?<![⁰¹²³⁴-⁹])([⁰¹²³⁴-⁹]++)[⁄/](?=[₀-₉])")
_NOTE = re.compile(r"(?<=[\w.!?%€$)\"'\]])(?<!\bis)(?<!\bwas)\s?(?:\[\^?\d+(?:\s?[,–-]\s?\d+)*\]|【[^】\n]*】)")


def simplify(text: str) -> str:
    """Return the text in one notation, without markup and the raised numbers of footnotes."""
    text = unicodedata.normalize("NFC", text)
    if not text.isascii():
        text = _UPPER.sub(lambda m: unicodedata.normalize("NFKC", f" {m[1]}/"), text)
        text = re.sub(r"(?<=[^\W_])(?<![⁄/₀-₉])(?=[₀-₉])", "_", text)
        power = re.compile(r"(?<=[\w)°])" + _RAISED.pattern)
        text = _RAISED.sub("", power.sub(lambda m: f"^{unicodedata.normalize('NFKC', m[0])}", text))
        text = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", text).translate(_SIGNS)
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
        text = _substitute(_DASHES, re.sub(r"\d", lambda m: str(unicodedata.decimal(m[0])), text))
    text = _substitute(_MARKUP, _substitute(_LATEX, text) if set("\\${") & set(text) else text)
    return re.sub(r"[^\S\n]+", " ", text)


def _substitute(rules: Sequence[tuple[str, str]], text: str) -> str:
    for pattern, new in rules:
        text = re.sub(pattern, new, text)
    return text


def remove_notes(text: str) -> str:
    """Return the text without the numbers of sources behind its words; `[42]` alone or behind `is` is a result."""
    return text if re.fullmatch(r"\s*[a-z_]\w*\[\d+\]\s*", text) else _NOTE.sub("", text)  # a[1] is code


Quantity = tuple[Fraction, str, int]
"""A number in a text: its value, its unit, and where it ends. The unit is a symbol where there is one, else the words
that are counted; `%` of percent, whose value is the number that it stands for."""

_CODES = "USD|EUR|GBP|JPY|INR|CHF|CAD|AUD|CNY|RUB|KRW"
_QUANTITY = re.compile(
    r"(?<![A-Za-zÀ-ɏͰ-ϿЀ-ӿ_^\\])(?<![A-Za-z]\()(?<!\d)(?<!\d[.,:/'])"
    r"(?P<minus>(?<![\w)])-|(?<==\s)-\s|\b(?:minus|negative)\s|\+)?"
    rf"(?P<money>(?:US|[CA])?\$|Rs\.?\s|[€£¥₹]|(?:{_CODES})\s)?\s?(?P<inner>-)?"
    r"(?P<digits>\d{1,3}(?:[ ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,'_]\d+)*|\.\d+)"
    r"(?:\s(?:and\s)?(?P<part>\d{1,9})\s?/\s?(?P<whole>\d{1,9})(?!\d)|\s?/\s?(?P<below>\d{1,9})(?!\d))?"
    r"(?:[eE](?P<e>[-+]?\d{1,3})|\s?[×x*]\s?10\^\(?(?P<ten>[-+]?\d{1,3})\)?|\^\(?(?P<power>[-+]?\d{1,2})\)?)?(?!\d)"
)
_NUMERAL = re.compile(
    r"(\d+(?:_\d+)*|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3})(?:\.(\d+))?|(\d*)[.,](\d+)"
    r"|(\d{1,3}(?:[ ']\d{3})+)(?:[.,](\d+))?|([1-9]\d{0,2}(?:\.\d{3})+),(\d+)|([1-9]\d{0,2}(?:\.\d{3}){2})"
)
_OPEN = re.compile(
    r"[\^!(\\+*×=<>≤≥_]|\s[+*×/=<>≤≥x]\s?[\w(]|\s?(?:st|nd|rd|th)\b|(?<=[12]\d\d0)s\b|\s?[-–/:]\s?\d|,\d|[.]\d"
)
"""What makes a number the beginning of something else."""
_SCALE_WORDS = (
    "12 dozen dozens|100 hundred|1000 thousand thousands k K tausend mille mil тысяч|10000 万|100000 lakh lakhs|"
    "1000000 million millions mio mn M millionen millones milioni milhões миллионов млн|10000000 crore crores|"
    "100000000 亿 億|1000000000 billion billions bn B milliarde milliarden milliard milliards mrd миллиардов млрд|"
    "1000000000000 trillion trillions billionen"
)
_SCALES = {word: int(line.split()[0]) for line in _SCALE_WORDS.split("|") for word in line.split()[1:]}
_LONG = "|".join(sorted((word for word in _SCALES if len(word) > 1 or not word.isascii()), key=len, reverse=True))
_SCALE = re.compile(rf"\s?((?i:{_LONG})(?![A-Za-zÀ-ɏа-я])|k\b)\.?|((?<=\d)[KMB]\b)")
_UNIT_WORDS = (
    "m meter metre|km kilometer kilometre|dm|cm centimeter centimetre|mm millimeter millimetre|mi mile|ft foot feet|"
    "yd yard|in inch|kg kilogram kilo|g gram|mg milligram|t ton tonne|lb lbs|oz ounce|l L liter litre|ml mL|"
    "s sec second|min minute|h hr hour|day|week|month|year|°C celsius|°F fahrenheit|K kelvin|° degree deg|N newton|"
    "J joule|kJ|MJ|W watt|mW|kW|MW|kWh|V volt|A ampere|mA|Hz|MHz|GHz|Pa pascal|hPa|kPa|cal|kcal|ha hectare|KB|MB|GB|TB|"
    "USD $ US$ dollar|cent|EUR € euro|GBP £|JPY ¥ yen|INR ₹ Rs|CAD C$|AUD A$|CHF|CNY|RUB|KRW|km/h kmh|mph|am a.m.|"
    "pm p.m.|% percent|‰"
)
_UNITS = {alias: line.split()[0] for line in _UNIT_WORDS.split("|") for alias in line.split()}
SYMBOLS = frozenset(_UNITS.values())
_MEASURES = (
    "m km 1e3 dm .1 cm .01 mm .001 mi 1609.344 ft .3048 yd .9144 in .0254|g kg 1e3 mg .001 t 1e6 lb 453.59237|"
    "l ml .001|s min 60 h 3600 day 86400 week 604800|month year 12|m^2 ha 1e4|J kJ 1e3 MJ 1e6 kWh 3.6e6|"
    "Pa hPa 100 kPa 1e3|W mW .001 kW 1e3 MW 1e6|A mA .001|Hz MHz 1e6 GHz 1e9|cal kcal 1e3|"
    "USD cent .01|KB MB 1e3 GB 1e6 TB 1e9"
)
"""The first unit of each kind, then others with how many of it they are."""
_FACTORS = {
    name: (Fraction(factor), words[0])
    for words in map(str.split, _MEASURES.split("|"))
    for name, factor in zip(words[1::2], words[2::2], strict=True)
}
_NAME = r"(?!in \w)(?:(square|cubic|sq\.?) )?([ap]\.m\.|US\$|°\s?[CF]\b|[^\W\d_]+|[°%‰$€£¥₹])(?:\^?(-?\d)(?!\d))?"
_JOINTS = re.compile(r"[ -]?" + _NAME), re.compile(r"\s?(?:/|per |an? )\s?" + _NAME)
_COUNTED = re.compile(r"( ?)([^\W\d_]+)")
_STOP = re.compile(
    r"(?i)(?:of|in|on|at|for|from|by|per|with|out|to|that|which|who|because|since|so|and|or|but|if|when|after|before|each|"
    r"is|are|was|were|a|an|the|this|than|not|as|more|less|fewer|times|plus|minus|de|x)\b"
)
_EURO = re.compile(r"\s*+€")
_FOREIGN = re.compile(
    r"[Ѐ-ӿ]|\b(?i:antwort|ergebnis|ist|sind|macht|das|der|est|sont|les|réponse|respuesta|risposta|resposta|svar|het)\b"
)


def convert(value: Fraction, unit: str) -> tuple[Fraction, str]:
    """Return a quantity in the first unit of its kind: 36 km/h as 10 m/s."""
    if unit in ("°F", "K"):
        return (value - 32) / Fraction("1.8") if unit == "°F" else value - Fraction("273.15"), "°C"
    bases: list[str] = []
    for place, part in enumerate(unit.replace("mph", "mi/h").split("/")):
        name, mark, power = part.partition("^")
        factor, base = _FACTORS.get(name, (Fraction(1), name))
        value *= factor ** (int(power or 1) * (-1 if place else 1))
        bases.append(base + mark + power)
    return value, "/".join(bases)


def find_quantities(text: str) -> list[Quantity]:
    """Return the numbers of a simplified text that can be read for certain. One that cannot ends the list."""
    quantities: list[Quantity] = []
    is_foreign = _FOREIGN.search(text) is not None
    while match := _QUANTITY.search(text, quantities[-1][2] if quantities else 0):
        if (quantity := _read_quantity(match, text, is_foreign)) is None:
            break
        quantities.append(quantity)
    return quantities


def match_quantity(text: str, context: str = "") -> Quantity | None:
    """Return the number that a simplified text begins with; None: it begins otherwise, or nobody can say with which.

    context: what stands before it, for its language may write 1.500 for a thousand and a half.
    """
    match = _QUANTITY.match(text)
    return None if match is None else _read_quantity(match, text, _FOREIGN.search(context + text) is not None)


def _read_quantity(match: re.Match[str], text: str, is_foreign: bool) -> Quantity | None:
    value, end, money = _read_value(match), match.end(), match["money"]
    has_one_mark = re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", match["digits"]) is not None
    is_ambiguous = has_one_mark and (is_foreign or _EURO.match(text, end))
    if value is None or is_ambiguous or _OPEN.match(text, end):
        return None
    if scale := _SCALE.match(text, end):
        word = scale[2] or scale[1].lower()
        if is_foreign and word.startswith(("billion", "trillion")) and word != "billionen":
            return None
        value, end = value * _SCALES[word], scale.end()
    elif money and re.match(r"m\b", text[end : end + 2]):
        value, end = value * 10**6, end + 1
    unit = _read_unit(text, end, money and _UNITS[money.strip(". ")])
    if unit is None:
        return None
    sign = -1 if (match["minus"] or "+") != "+" or match["inner"] else 1
    share = {"%": 100, "‰": 1000}.get(unit[0], 1)
    return sign * value / share, "%" if share > 1 else unit[0], unit[1]


def _read_value(match: re.Match[str]) -> Fraction | None:
    numeral = _NUMERAL.fullmatch(match["digits"])
    if numeral is None or numeral.end() - numeral.start() > 300 or re.match(r"0\d{3}", match["digits"]):
        return None
    whole, part, *_ = *(group for group in numeral.groups() if group is not None), ""
    below, exponent = int(match["below"] or match["whole"] or 1), match["e"] or match["ten"]
    if not below:
        return None
    value = Fraction(int(re.sub(r"\D", "", whole) + part), 10 ** len(part)) / (1 if match["part"] else below)
    value += Fraction(int(match["part"] or 0), below)
    return value ** int(match["power"]) if match["power"] and value else value * Fraction(10) ** int(exponent or 0)


def _read_unit(text: str, start: int, money: str | None) -> tuple[str, int] | None:
    """Return the unit at the start, "" without one, and its end; None: letters that are no unit, as in 2x."""
    parts, end = [money] if money else [], start
    while word := _JOINTS[bool(parts)].match(text, end):
        name = word[2].replace(" ", "")
        plain = name if re.fullmatch(r"M\w", name) else name.lower()  # 5 Mg are no 5 mg
        unit = _UNITS.get(name) or _UNITS.get(plain) or _UNITS.get(plain.removesuffix("s"))
        if unit is None:
            break
        power = "2" if (word[1] or "").startswith("sq") else "3" if word[1] else word[3] or "1"
        parts.append(unit if power == "1" else f"{unit}^{power}")
        end = word.end()
    counted = _COUNTED.match(text, end)
    if parts:
        return None if counted and not counted[1] else ("/".join(parts), end)
    name = counted[2] if counted and not _STOP.match(counted[2]) else ""
    first = re.match(r"[A-Za-zÀ-ɏͰ-ϿЀ-ӿ]", counted[2]) if counted else None
    if counted and first and (not counted[1] or 0 < len(name) < 3):
        return None
    return name.casefold().removesuffix("s"), counted.end() if counted and name else end
