"""As much council as a question needs: whom to ask first, and whether the others are needed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from massmem.config.models import AgentConfig
from massmem.core.messages import Candidate, Usage, clean_text
from massmem.core.prompts import build_compare_request
from massmem.core.text import one_line
from massmem.memory.tokens import estimate_tokens
from massmem.providers.pricing import Price
from massmem.tools.actions import build_object_schema, find_object
from massmem.turn.agent import Agent


def choose_first_agents(agents: Sequence[AgentConfig]) -> tuple[str, ...]:
    """Return the ids of the two agents that `coordination.depth: adaptive` asks first; all of a smaller team.

    The first of the team, and the next one with another model, else with another system message, else with another
    temperature, else the next one: what different agents say alike is worth more.
    """
    if len(agents) <= 2:
        return tuple(agent.id for agent in agents)
    first, *others = agents
    second = next(
        (other for differs in _DIFFERENCES for other in others if differs(other) != differs(first)), others[0]
    )
    return first.id, second.id


_DIFFERENCES: tuple[Callable[[AgentConfig], object], ...] = (
    lambda agent: (agent.backend.type, agent.backend.base_url, agent.backend.model),
    lambda agent: agent.system_message,
    lambda agent: agent.backend.temperature,
)

# Whether a question asks for a text: one draft too many costs tokens, a claim that nobody checked may be wrong. So what
# is not known for certain to ask for a text asks for a claim.

_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening|night|day)|thanks|thank you|many thanks|bye|goodbye|"
    r"see you(?: soon| later| tomorrow)?|that (?:helped|was helpful)|"
    r"how are you|hallo|guten (?:morgen|tag|abend)|danke|vielen dank|bonjour|merci|hola|buen[oa]s (?:días|tardes)|"
    r"gracias|ciao|grazie|olá|obrigad[oa]|bedankt|tack|привет|спасибо)"
    r"(?: (?:there|all|everyone|again|so much|very much|a lot|schön|sehr|beaucoup|mille|for your help))*"
)
_POLITE = r"(?:(?:please|bitte|por favor)[, ]+)?(?:(?:can|could|would|will) you (?:please )?)?"
_WRITE = (
    r"(?:write|draft|compose|schreibe?|verfasse|écris|écrivez|rédige[sz]?|escr[ií]be|redacta)"
    r"(?:[ -]?(?:me|us|mir|uns|bitte|moi|nous))*"
    r" (?:an?|my|our|some|eine[nm]?|ein|une?|una?)(?: [\w',-]+){0,3}?"
)
_KIND = (
    r" (?:letters?|e-?mails?|mails?|poems?|haikus?|limericks?|story|stories|messages?|notes?|invitations?|toast|speech|"
    r"songs?|lyrics|cards?|apology|tweets?|slogans?|reply|replies|brief|gedicht|geschichte|nachricht|einladung|rede|"
    r"lettre|poème|histoire|carta|correo|poema|cuento|mensaje)"
)
_TRANSLATE = (
    r"(?:translate|übersetze?|traduis|traduisez|traduce)(?: [\w'\" -]+?)?? (?:in|into|to|ins|en|al)"
    r" (?:english|german|french|spanish|italian|portuguese|dutch|swedish|danish|norwegian|finnish|polish|czech|"
    r"hungarian|romanian|turkish|russian|greek|arabic|hindi|chinese|japanese|korean|"
    r"(?:englisch|deutsch|französisch|spanisch)e?|anglais|allemand|français|espagnol|inglés|alemán|francés|español)"
)
_REPHRASE = (
    r"(?:rephrase|reword|paraphrase|proofread|shorten)(?: (?:this|these|it|my|our|the following)(?: [\w'-]+){0,4}?)?"
)
_END = r"(?=\s*(?:$|[.!,:\"]))"
_FOR = r"(?= (?:to|for|about|asking|thanking|inviting|an|für|über|à|pour|sur|a|para|sobre)\b)"
_TASK = re.compile(f"{_POLITE}(?:{_WRITE}{_KIND}(?:{_END}|{_FOR})|(?:{_TRANSLATE}|{_REPHRASE}){_END})")
_CLAIM = re.compile(
    r"[?=%]|\d\s*[-+*/^×÷]\s*\d|\b(?:tell|say|give|name|state|mention|include|with the|whether|explain|calculate|"
    r"compute|count|how|verify|check|true|false|correct|proof|prove|solve|why|which|what|who|when|where|estimate|"
    r"compare|decide|number|sum|fraction|equation|value|result|find|list|year|capital|code|program|"
    r"ob|wie|wieviele?|wer|wann|wo|warum|welche[rs]?|erkläre?|prüfe?|berechne|stimmt|wahr|sage?|nenne?|"
    r"combien|pourquoi|quel(?:le)?s?|explique|calcule|vrai|dis|nomme|"
    r"cuánt[oa]s?|cuál|qué|quién|explica|calcula|verdad|dime)\b"
)
_LONGEST = 4_000
"""Characters of a text that is looked at."""
_QUOTED = re.compile(r"\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»")


def asks_for_text(question: str) -> bool:
    """Return whether a question asks for a text rather than a claim: one agent is enough, and there is no vote.

    It is nothing but a greeting, thanks or a farewell. Or it begins by asking for a letter, a mail, a poem and the
    like, for a translation into a language, or to rephrase, shorten or proofread a text; and outside of quotes it has
    no question mark, no calculation and no word that asks for a claim, such as `tell`, `whether` or `how`. A long
    text asks for a claim.

    question: as it was asked, without the texts of files.
    """
    if len(question) > _LONGEST:
        return False
    text = " ".join(question.casefold().replace("’", "'").split())
    pieces = [piece for part in re.split(r"[.,!?:;]", text) if (piece := part.strip(" ¡¿)("))]
    if pieces and all(map(_SMALL_TALK.fullmatch, pieces)):
        return True
    plain = _QUOTED.sub('""', text)
    if plain.startswith(("can you ", "could you ", "would you ", "will you ")):
        plain = plain.removesuffix("?")
    return _TASK.match(plain) is not None and _CLAIM.search(plain) is None


# Whether two texts say the same

_SCHEMA = build_object_schema(difference={"type": "string"}, same={"type": "boolean"})
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
_REPLY_TOKENS = 60
"""Of a comparison, without what the model thinks."""
_OUTPUT_WEIGHT = 4
"""Where a price is not known: providers charge four to eight times as much for a token of a reply as for one of a
prompt, and a model on a processor reads about four times as fast as it writes."""
_WORTH = 0.5
"""Share of what comparing may save that it may cost: one that finds a difference saves nothing."""
_LONGEST_DIFFERENCE = 300


@dataclass(frozen=True, slots=True)
class Comparison:
    """What an agent says of two answers. A reply that cannot be read never says that they are the same."""

    same: bool
    difference: str
    usage: Usage


async def compare_answers(agent: Agent, question: str, candidates: Sequence[Candidate]) -> Comparison:
    """Ask the agent whether answers say the same, in one request. Raises as `ChatProvider.stream`."""
    reply = await agent.compare(build_compare_request(question, candidates), _SCHEMA)
    data = find_object(reply.text) or {}
    same, difference = _TRUTHS.get(str(data.get("same")).strip().casefold()), data.get("difference")
    if same is None or reply.is_truncated:
        return Comparison(same=False, difference="the comparison could not be read", usage=reply.usage)
    text = one_line(clean_text(difference), _LONGEST_DIFFERENCE) if isinstance(difference, str) else ""
    return Comparison(same, text, reply.usage)


def is_worth_comparing(
    question: str,
    candidates: Sequence[Candidate],
    spent: Usage,
    comparer: Price,
    others: Sequence[Price],
    *,
    votes: bool,
) -> bool:
    """Return whether comparing two answers costs less than half of what asking the other agents would.

    Each of these is taken to answer as the two did, and, with votes, to read all answers for a ballot. Dollars count
    where all prices are known, else tokens, see `_OUTPUT_WEIGHT`.

    spent: for both answers.
    """
    prompt = sum(estimate_tokens(message.content) for message in build_compare_request(question, candidates))
    comparison = Usage(prompt, _REPLY_TOKENS + spent.reasoning // 2)
    answer = Usage(spent.prompt // 2, spent.completion // 2)
    work = answer
    if votes:
        read = answer.prompt + (len(others) + 2) * answer.completion
        work += Usage(read, _REPLY_TOKENS + spent.reasoning // 2)
    costs = [comparer.cost(comparison), *(price.cost(work) for price in others)]
    known = [float(cost) for cost in costs if cost is not None]
    if len(known) == len(costs) and any(known):
        return known[0] < _WORTH * sum(known[1:])
    cost, saved = (usage.prompt + _OUTPUT_WEIGHT * usage.completion for usage in (comparison, work))
    return cost < _WORTH * len(others) * saved
