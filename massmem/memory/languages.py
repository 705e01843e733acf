"""Guesses the language of a text, so that its words get the right stemmer. Pure, cheap, always the same.

A wrong guess costs little: the forms that the guess adds stand beside those that every word has.
"""

import re
from functools import lru_cache

_READ = 1_000
"""Characters of a text that are looked at: the language of a message shows in its first sentences."""

ENGLISH = "english"

_FUNCTION_WORDS = {
    ENGLISH: "the of and is are was to that this with for it you we they my your what how where when who did do does "
    "have has had not but from which why a an i in on at be or so by as if me no can will he she his her our us am per",
    "german": "der das und ist in was so nicht ich ein eine einen einem mit für auf auch wir sie wie wo wann wer dass "
    "wurde habe hat mein meine meinen unser welche welcher welches den dem des zu im am vom zum",
    "french": "le les des et est une dans que qui pour pas sur je nous vous avec mon ma mes quel quelle où quand "
    "comment du au aux ce cette son sa ses ont il elle leur",
    "spanish": "el los las es una en que por con para no se del mi mis qué cuál cómo dónde cuándo quién su sus lo "
    "pero está hay nuestro nuestra tiene fue al",
    "italian": "il gli è una che per con non di sono mio mia della del dei nel nella quale come dove quando chi "
    "cosa ho ha abbiamo lo più anche ai alla",
    "portuguese": "os as é uma que em não por com para meu minha do da dos das no na qual como onde quando quem "
    "são foi ao eu você seu sua nosso",
    "dutch": "in is de het een en van ik niet dat met voor zijn op aan mijn wat hoe waar wanneer wie heeft heb ook "
    "naar ons welke bij wordt",
    "swedish": "och att det som en är jag inte på med för av till har min mitt mina vad hur var när vem den ett vi "
    "från också vilken",
    "danish": "og at det som en er jeg ikke på med for af til har min mit mine hvad hvordan hvor hvornår hvem den et "
    "vi fra også hvilken blev",
    "norwegian": "og at det som en er jeg ikke på med for av til har min mitt mine hva hvordan hvor når hvem den et "
    "vi fra også hvilken ble",
    "finnish": "ja on ei se että hän minä mutta ovat oli kun niin missä milloin kuka mikä miten minun meidän joka "
    "myös kanssa",
    "polish": "nie na się że do jest jak co to mój moja gdzie kiedy kto który jaki dla po od są był była mam",
    "czech": "na se je že do jak co můj moje kde kdy kdo který jaký pro po od jsou byl byla mám jsem není",
    "hungarian": "az és nem hogy egy van volt mit hol mikor ki hogyan melyik én mi meg is ez csak már",
    "romanian": "și în nu la cu de este pe un mea meu ce unde când cine cum din pentru sunt am fost lui",
    "turkish": "ve bir bu da de için ile ne nerede nasıl kim hangi benim bizim çok var değil mi olan daha",
    "catalan": "el els les és una amb per no que del meu meva què quin quina com on quan qui són va als dels",
    "indonesian": "yang dan di itu dengan untuk tidak ini dari saya kami apa bagaimana mana kapan siapa adalah akan "
    "pada ke",
}
_LANGUAGES_OF_WORD: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF_WORD.setdefault(_word, []).append(_language)

_SCRIPTS = {
    "russian": re.compile("[\u0400-\u04ff]"),
    "greek": re.compile("[\u0370-\u03ff]"),
    "arabic": re.compile("[\u0600-\u06ff]"),
    "hindi": re.compile("[\u0900-\u097f]"),
    "tamil": re.compile("[\u0b80-\u0bff]"),
    "armenian": re.compile("[\u0530-\u058f]"),
}
_LAST_LATIN = "\u024f"
_PERSIAN = re.compile("[پچژگی]")
_WORD = re.compile(r"[^\W\d_]+")


def is_english(text: str) -> bool:
    """Return whether nothing speaks for another language than English: no function words, no other script."""
    letters = "".join(_WORD.findall(text[:_READ]))
    in_latin = sum(letter <= _LAST_LATIN for letter in letters)
    return 2 * in_latin >= len(letters) and guess_language(text) == ENGLISH


@lru_cache(1_000)
def guess_language(text: str) -> str:
    """Return the name of a Snowball stemmer; "english" when nothing speaks for another one.

    The script decides, and among languages in Latin letters the one with most function words; English when it has as
    many.
    """
    start = text[:_READ].lower()
    words: list[str] = _WORD.findall(start)
    if not start.isascii():
        letters = sum(map(len, words))
        for language, script in _SCRIPTS.items():
            if 2 * len(script.findall(start)) > letters:
                return "persian" if language == "arabic" and _PERSIAN.search(start) else language
    counts = dict.fromkeys(_FUNCTION_WORDS, 0)
    for word in words:
        for language in _LANGUAGES_OF_WORD.get(word, ()):
            counts[language] += 1
    return max(counts, key=counts.__getitem__)  # of equal ones the first, which is English
