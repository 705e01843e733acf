"""Chains of values that supersede one another, said in passing and without words such as "now", "moved" or "changed".

A world is one user's conversations over a year: chains, facts that never change, chatter, and an assistant's answers,
some of which repeat a value. The same seed gives the same worlds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

Wording = Literal["direct", "paraphrased"]
Author = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Family:
    """What can be said of one attribute. "{}" stands for the value."""

    subject: str
    names: tuple[str, ...]
    """What a model may call the attribute."""
    values: tuple[str, ...]
    statements: tuple[str, ...]
    """The first one is the direct one."""
    questions: tuple[str, ...]
    """The first one is the direct one."""


TUNED: tuple[Family, ...] = (
    Family(
        "user", ("home city", "city of residence", "home"), ("Leipzig", "Porto", "Ghent", "Turku", "Graz", "Malmo"),
        ("I live in {}.", "My flat is in {}, close to the river.", "Home is {} for us.", "We rent a place in {}.",
         "I am based in {}."),
        ("Where do I live?", "In which city is my home?", "What town should my post go to?"),
    ),
    Family(
        "user", ("employer", "company", "works for"),
        ("Brightwell", "Kestrel Labs", "Norden Energy", "Quillon", "Farmhaus", "Ostra Bank"),
        ("I work for {}.", "My employer is {}.", "I am on the payroll of {}.", "{} pays my salary.",
         "My office badge says {}."),
        ("Who do I work for?", "What is the name of my company?", "Who employs me?"),
    ),
    Family(
        "user", ("manager", "boss", "reports to"),
        ("Ingrid Voss", "Tomasz Bielak", "Priya Raman", "Olu Adeyemi", "Hanna Lind", "Marco Dessi"),
        ("My boss is {}.", "I report to {}.", "{} is my manager.", "My line manager is {}.",
         "{} signs off my holidays as my supervisor."),
        ("Who is my boss?", "To whom do I report?", "Which person manages me?"),
    ),
    Family(
        "Falcon", ("deadline", "due date", "delivery date"),
        ("3 March", "17 April", "9 May", "21 June", "30 August", "12 October"),
        ("The deadline of Falcon is {}.", "Falcon is due on {}.", "We deliver Falcon on {}.",
         "The customer expects Falcon on {}.", "Falcon has to be with the client by {}."),
        ("What is the deadline of Falcon?", "When is Falcon due?", "By which date do we have to hand over Falcon?"),
    ),
    Family(
        "staging server", ("Postgres version", "database version", "database"),
        ("Postgres 13", "Postgres 14", "Postgres 15", "Postgres 16", "Postgres 17", "Postgres 18"),
        ("The staging server runs {}.", "Staging is on {}.", "{} is installed on the staging server.",
         "The database of staging is {}.", "On staging we use {}."),
        ("Which Postgres does the staging server run?", "What database version is on staging?",
         "What would I find installed as the database of our staging machine?"),
    ),
    Family(
        "user", ("car", "vehicle", "drives"),
        ("Skoda Fabia", "Renault Zoe", "Volvo V60", "Fiat Panda", "Kia Niro", "Mazda 3"),
        ("I drive a {}.", "My car is a {}.", "There is a {} in my garage.", "I take the {} to the office.",
         "Our car is a {}."),
        ("What car do I drive?", "Which vehicle do I own?", "What do I sit in when I commute by road?"),
    ),
    Family(
        "user", ("dentist",), ("Dr Achebe", "Dr Molina", "Dr Tanaka", "Dr Weiss", "Dr Larsen", "Dr Novak"),
        ("My dentist is {}.", "I go to {} for my teeth.", "{} looks after my teeth.", "{} is the dentist I see.",
         "I have {} as my dentist."),
        ("Who is my dentist?", "Who takes care of my teeth?", "Whose practice do I visit for a filling?"),
    ),
    Family(
        "weekly sync", ("time", "start time"), ("9:15", "10:30", "11:45", "13:15", "14:45", "16:20"),
        ("The weekly sync is at {}.", "Our weekly sync starts at {}.", "We hold the weekly sync at {}.",
         "The weekly sync begins at {}.", "Everyone dials in to the weekly sync at {}."),
        ("When is the weekly sync?", "At what time does the weekly sync start?", "What time do we all meet each week?"),
    ),
    Family(
        "user", ("favourite colour", "favorite color"), ("teal", "ochre", "crimson", "indigo", "magenta", "olive"),
        ("My favourite colour is {}.", "I like {} best of all colours.", "{} is the colour I love most.",
         "Of all colours I pick {}.", "The colour for me is {}."),
        ("What is my favourite colour?", "Which colour do I like best?", "Which paint should you choose to please me?"),
    ),
    Family(
        "Heron", ("budget",), ("42,000 euros", "55,000 euros", "61,500 euros", "73,000 euros", "88,000 euros",
        "97,500 euros"),
        ("The budget of Heron is {}.", "We have {} for Heron.", "Heron has a budget of {}.",
         "Finance gives us {} for Heron.", "For Heron we can spend {}."),
        ("What is the budget of Heron?", "How much can we spend on Heron?", "How much money is there for Heron?"),
    ),
)  # fmt: skip
"""The rules were written with these in sight."""

HELD_OUT: tuple[Family, ...] = (
    Family(
        "user", ("phone number", "mobile number"),
        ("555-0117", "555-0142", "555-0168", "555-0183", "555-0191", "555-0126"),
        ("My phone number is {}.", "You reach me at {}.", "Call me on {}.", "My mobile is {}.",
         "My number is {}."),
        ("What is my phone number?", "How can someone call me?", "Which digits should a courier dial for me?"),
    ),
    Family(
        "user", ("gym", "fitness club"),
        ("Ironworks", "Pulse House", "Flexhalle", "Arena Nord", "Beatclub", "Kraftraum"),
        ("I train at {}.", "My gym is {}.", "I am a member of {}, the gym.", "I work out at {}.",
         "I lift weights at {}."),
        ("Which gym do I train at?", "Where do I work out?", "Where would you find me lifting weights?"),
    ),
    Family(
        "user", ("editor", "text editor"), ("Helix", "Sublime", "Emacs", "Kakoune", "Zed", "Neovim"),
        ("My editor is {}.", "I write my code in {}.", "I do all my coding in {}.", "{} is the editor I use.",
         "I use {} as my editor."),
        ("What is my editor?", "In what do I write code?", "Which program do I type my source files in?"),
    ),
    Family(
        "Osprey", ("license", "licence"), ("MIT", "Apache-2.0", "GPL-3.0", "BSD-3-Clause", "MPL-2.0", "AGPL-3.0"),
        ("The license of Osprey is {}.", "Osprey is licensed under {}.", "We publish Osprey under {}.",
         "Osprey comes under {}.", "{} is the license of Osprey."),
        ("What is the license of Osprey?", "Under which license is Osprey published?",
         "Which legal terms does Osprey ship with?"),
    ),
    Family(
        "user", ("landlord",), ("Mr Okafor", "Ms Brandt", "Mr Silva", "Ms Keller", "Mr Dubois", "Ms Haddad"),
        ("My landlord is {}.", "I rent from {}.", "I pay my rent to {}.", "{} owns the flat that I rent.",
         "{} is my landlord."),
        ("Who is my landlord?", "Whom do I pay rent to?", "Who owns the place I rent?"),
    ),
    Family(
        "user", ("wake-up time", "alarm time"), ("5:40", "6:10", "6:50", "7:25", "7:55", "8:15"),
        ("I get up at {}.", "My alarm rings at {}.", "I wake up at {}.", "My alarm is set to {}.",
         "My day starts at {}."),
        ("When do I get up?", "What time does my alarm ring?", "At what hour does my morning begin?"),
    ),
    Family(
        "Kite team", ("lead", "team lead"),
        ("Yusuf Demir", "Anneke Visser", "Paulo Reis", "Mei Lin", "Greta Holm", "Ivan Petrov"),
        ("The lead of the Kite team is {}.", "{} leads the Kite team.", "The Kite team is led by {}.",
         "{} runs the Kite team.", "The head of the Kite team is {}."),
        ("Who is the lead of the Kite team?", "Who leads the Kite team?", "Whom should I ask about decisions of Kite?"),
    ),
    Family(
        "production", ("region", "cloud region"),
        ("eu-west-1", "eu-north-1", "us-east-2", "ap-south-1", "ca-central-1", "sa-east-1"),
        ("Production runs in {}.", "Our production region is {}.", "Production is hosted in {}.",
         "We host production in {}.", "The region of production is {}."),
        ("Which region does production run in?", "Where is production hosted?", "In which data centre is our system?"),
    ),
    Family(
        "user", ("bank",), ("Ostbank", "Sparhaus", "Fjordkasse", "Banco Lua", "Meridian Trust", "Hanseatic Credit"),
        ("My bank is {}.", "I bank with {}.", "My account is with {}.", "I have my account at {}.",
         "My salary goes to my account at {}."),
        ("What is my bank?", "Where is my account?", "Who keeps my money?"),
    ),
    Family(
        "user", ("diet",), ("vegan", "pescatarian", "vegetarian", "paleo", "keto", "gluten-free"),
        ("My diet is {}.", "I eat {}.", "I follow a {} diet.", "I keep to {} food.", "I cook {} at home."),
        ("What is my diet?", "What kind of food do I eat?", "What should a host keep in mind when cooking for me?"),
    ),
)  # fmt: skip
"""The rules were written without a look at their figures."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What never changes."""

    text: str
    question: str
    answer: str
    claim: tuple[str, str] | None = None
    """Subject and attribute, where a model may take it for a value that can change."""


STATIC = (
    Fact("My sister Clara plays the cello in Bergen.", "What does my sister Clara play?", "cello"),
    Fact("My sister Clara is a nurse.", "What is Clara's profession?", "nurse", ("Clara", "profession")),
    Fact("My dog Pixel is a beagle.", "What breed is my dog Pixel?", "beagle", ("Pixel", "breed")),
    Fact("My cat Momo sleeps on the radiator.", "Where does my cat sleep?", "radiator"),
    Fact("I studied geology in Aberdeen.", "What did I study?", "geology"),
    Fact("I am allergic to hazelnuts.", "What am I allergic to?", "hazelnuts"),
    Fact("My son Emil was born in 2019.", "When was my son Emil born?", "2019", ("Emil", "year of birth")),
    Fact("My daughter Frida is in third grade.", "Which grade is Frida in?", "third grade", ("Frida", "grade")),
    Fact("I speak Danish and Turkish.", "Which languages do I speak?", "Turkish"),
    Fact("I play chess on Thursdays.", "What do I play on Thursdays?", "chess"),
    Fact("I play the banjo.", "Which instrument do I play?", "banjo", ("user", "instrument")),
    Fact("I collect old maps.", "What do I collect?", "maps"),
    Fact("My bike is a blue Gazelle.", "What bike do I have?", "Gazelle", ("user", "bike")),
    Fact("My neighbour is a beekeeper.", "What does my neighbour do?", "beekeeper", ("neighbour", "job")),
    Fact("My neighbour is called Rosalind.", "What is my neighbour called?", "Rosalind", ("neighbour", "name")),
    Fact("The billing service is written in Elixir.", "In which language is the billing service written?", "Elixir",
         ("billing service", "language")),
    Fact("The billing service listens on port 8447.", "Which port does the billing service listen on?", "8447",
         ("billing service", "port")),
    Fact("Our wiki is at wiki.heronworks.example.", "Where is our wiki?", "wiki.heronworks.example"),
    Fact("The customer of Falcon is Aldermoor.", "Who is the customer of Falcon?", "Aldermoor", ("Falcon", "customer")),
    Fact("The architect of Heron is Benedikt.", "Who is the architect of Heron?", "Benedikt", ("Heron", "architect")),
    Fact("My favourite composer is Sibelius.", "Who is my favourite composer?", "Sibelius",
         ("user", "favourite composer")),
    Fact("My favourite fruit is quince.", "What is my favourite fruit?", "quince", ("user", "favourite fruit")),
    Fact("The office plant is a monstera.", "What is the office plant?", "monstera"),
    Fact("My laptop has 64 GB of memory.", "How much memory does my laptop have?", "64 GB", ("laptop", "memory")),
)  # fmt: skip
"""Some share a subject, which must not make them values of one attribute."""

_CHATTER = (
    "Can you shorten this paragraph for me?", "Thanks, that was useful.", "How do I boil eggs?",
    "Write a haiku about rain on a tin roof.", "Explain what a monad is in two sentences.",
    "I slept badly because of the storm.", "The train was late again this morning.",
    "What is a good name for a sourdough starter?", "My meeting ran over and I missed lunch.",
    "Convert 14 miles to kilometres.", "Should I water cacti in winter?", "I watched a documentary about octopuses.",
    "Suggest three titles for my talk on caching.", "How long does paint need to dry?", "The coffee machine leaks.",
    "I finished a book about lighthouses.", "Give me a packing list for a weekend of hiking.",
    "What rhymes with orange?", "We had soup with too much salt.", "Which screws hold best in plaster?",
)  # fmt: skip
_AROUND = (
    "{}", "{}", "{} Can you suggest something for the weekend?", "Thanks for yesterday. {}",
    "{} Please help me word a note to a friend.", "I had a long day. {} What should I read tonight?",
)  # fmt: skip
_REPLIES = (
    "Here is a suggestion that may help.", "Of course.", "Noted.", "Good, I will keep that in mind.",
    "Since you mention {}, I would plan around that.", "With {} in mind, I suggest to keep it simple.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    """What a user says of an attribute."""

    family: Family
    value: str
    wording: int
    """Index into the family's statements."""

    @property
    def text(self) -> str:
        text = self.family.statements[self.wording].format(self.value)
        return text[0].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class Message:
    session: str
    turn: int
    author: Author
    text: str
    time: datetime
    statement: "Statement | Fact | None" = None
    """What it states, if anything."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    answer: str
    stale: tuple[str, ...] = ()
    """Values that no longer hold; none for a fact that never changes."""
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class World:
    messages: tuple[Message, ...]
    """In order of time; every session takes turns of a user and the assistant."""
    questions: tuple[Question, ...]


def make_worlds(wording: Wording, chains: int = 200, seed: int = 18) -> list[World]:
    """Return worlds with so many chains of 2 to 4 values; one of each family in a world."""
    random = Random(f"{seed} {wording}")
    families = [*TUNED, *HELD_OUT]
    return [_make_world(random, wording, families) for _ in range(chains // len(families))]


def _make_world(random: Random, wording: Wording, families: Sequence[Family]) -> World:
    remarks: list[tuple[float, str, Statement | Fact | None]] = []
    questions: list[Question] = []
    for family in families:
        values = random.sample(family.values, random.randint(2, 4))
        kinds = random.sample(range(len(family.statements)), len(values))
        moments = sorted(random.sample(range(365), len(values)))
        for value, kind, day in zip(values, kinds, moments, strict=True):
            statement = Statement(family, value, 0 if wording == "direct" else kind)
            remarks.append((day + random.random(), random.choice(_AROUND).format(statement.text), statement))
        text = family.questions[0] if wording == "direct" else random.choice(family.questions[1:])
        questions.append(Question(text, values[-1], tuple(values[:-1]), family in HELD_OUT))
    for fact in STATIC:
        remarks.append((365 * random.random(), random.choice(_AROUND).format(fact.text), fact))
        questions.append(Question(fact.question, fact.answer))
    remarks += [(365 * random.random(), random.choice(_CHATTER), None) for _ in range(100)]
    remarks.sort(key=lambda remark: remark[0])
    return World(tuple(_make_messages(random, remarks)), tuple(questions))


def _make_messages(random: Random, remarks: Sequence[tuple[float, str, Statement | Fact | None]]) -> list[Message]:
    start = datetime(2025, 1, 1, 7, tzinfo=UTC)
    messages: list[Message] = []
    for number, (day, text, statement) in enumerate(remarks):
        session, turn = f"session_{number // 8:03}", number % 8 + 1
        time = start + timedelta(days=day)
        reply = random.choice(_REPLIES)
        reply = reply.format(statement.value) if isinstance(statement, Statement) else reply.replace("{}", "that")
        messages.append(Message(session, turn, "user", text, time, statement))
        messages.append(Message(session, turn, "assistant", reply, time + timedelta(seconds=20)))
    return messages
