"""Words that announce an answer, deny one, or make it a condition, in the languages models reply in.

Patterns are without flags of their own; `ANSWER`, `OPTION` and `BETWEEN` are meant for IGNORECASE.
"""

from __future__ import annotations

import re

__all__ = [
    "AFTER",
    "AND",
    "ANSWER",
    "BETWEEN",
    "BINOMIAL",
    "CERTAIN",
    "DENIED",
    "DENIED_AFTER",
    "GIVEN_UP",
    "INTERJECTION",
    "LETTER",
    "OPTION",
    "PICK",
    "RIGHT",
    "THIS_IS",
]

_EDGE, _END = r"(?<![^\W\d_\u2E80-\uFFFF])", r"(?![^\W\d_\u2E80-\uFFFF])"
"""Borders of a word in an alphabet; Chinese, Japanese and Korean characters may touch it."""

ANSWER = (
    rf"(?:{_EDGE}(?:answer|ans|antwort|lösung|respuesta|réponse|reponse|resposta|risposta|ответ|відповідь|antwoord"
    rf"|odpowiedź|svar|cevap|yanıt|đáp\s+án|câu\s+trả\s+lời|jawaban|jawabannya|उत्तर|الإجابة|الجواب|إجابة|جواب"
    rf"|ה?תשובה|solution|best\s+guess|final\s+guess){_END}"
    r"|答案|答え|答|正解|解答|回答|정답|답변|답|ค\u0e4d\u0e32ตอบ)"
)
OPTION = (
    rf"(?:{_EDGE}(?:option|choice|letter|opción|opcion|opção|alternativa|opzione|lettre|letra|lettera|choix|auswahl"
    rf"|buchstabe|вариант|seçenek|seçeneği|optie|opcja|phương\s+án|pilihan|opsi|الخيار|विकल्प){_END}"
    r"|选项|選項|選択肢|선택지|보기|ตัวเลือก)"
)

_FILLER = (
    rf"(?:{_EDGE}(?:is|was|would\s+be|should\s+be|must\s+be|will\s+be|has\s+to\s+be|seems(?:\s+to\s+be)?"
    r"|appears(?:\s+to\s+be)?|would|likely|probably|clearly|definitely|certainly|obviously|therefore|thus|indeed|most"
    r"|to\s+(?:this|the)\s+question|here|correct|the|be|ist|lautet|wäre|daher|also|richtige|die|der|das"
    r"|est|serait|sera|donc|correcte|exacte|la|le|es|sería|seria|por\s+tanto|correcta|el|é|portanto|correta"
    r"|è|sarebbe|quindi|corretta|giusta|sia|это|является|правильный|is\s+dus|het|juiste|to|jest|är|er|đúng|là|yang\s+benar"
    rf"|adalah|ialah|है|सही|هي|هو|الصحيحة|الصحيح|היא|הוא|הנכונה|option|choice|letter|answer|opción|opcion|opção"
    rf"|alternativa|opzione|lettre|letra|lettera|вариант|l'option|l'opzione){_END}"
    r"|[a-zà-ÿ]l?'s\b|'s\b|应该是|應該是|应当是|应是|應是|应为|應為|应选|應選|应该选|選擇|选择|就是|是|为|為|选项|選項|选|選"
    r"|は|が|은|는|คือ|[:：=\"'(—–-])"
)
BETWEEN = rf"(?:\s*{_FILLER}){{1,8}}\s*"
"""What may stand between "answer" and its letter."""

LETTER = r"(?:(?<![A-Za-z0-9])[(\[]?\s?([A-Z])\s?[)\]]?(?![A-Za-z0-9]|'(?!dir|dır|\W|$))|[(\[]([a-z])[)\]])"
"""A capital standing alone, or any letter in brackets; characters of other scripts may touch it."""

BINOMIAL = r"\.\s*(?:difficile|coli|pylori|aureus|albicans|perfringens|jejuni|faecalis|pneumoniae|elegans)\b"
"""What follows the letter in the short names of organisms: C. difficile is no option."""

AFTER = (
    r"(?!\s+(?!(?:because|since|as|which|that|where|due|based|given|not|but|and|or|for|with|it|the|this|in"
    r"|while|rather|instead|over|best|by|from|if|of\s+course|to\s+me|here|ist|weil|da|denn|est|car|parce|puisque|es|porque|ya|è"
    r"|perché|omdat|want|is|är|jest|bo|karena|vì)\b)[a-z])(?!-[A-Za-z])"
    rf"(?!{BINOMIAL})"
)
"""What may not follow: a lower-case word, which would make "A" an article ("A snare") and "B" a part of a
name ("B cells", "C. difficile"); words that go on with the sentence may."""

AND = (
    r"(?:\s*(?:,|/|&|\+|、|\b(?:and|or|und|oder|et|ou|y|o|e|и|или|en|of|dan|atau|và|hoặc)\b"
    r"|或者|或|和|与|または|と|또는|와))+"
)

THIS_IS = (
    r"(?:(?i:\b(?:it|this|that|which|there)(?:\s+(?:is|would\s+be|must\s+be|has\s+to\s+be|should\s+be|can\s+only\s+be)"
    r"|'s)|\blooks\s+like|\bes\s+ist|\bc'est|\bes|\bé|\bè|\bэто|\bto\s+jest|\bhet\s+is)"
    r"(?:\s+(?i:most|likely|probably|clearly|definitely|therefore|option|choice|letter|answer|la|a|l'option|die|antwort"
    r"|réponse|opción|opção|letra|lettre|вариант)){0,6}\s+|而是|(?<![不非])就是|(?:应该|應該|(?<![不非是为]))是)"
)
"""It is, that's, c'est, es ist, 是: what states the letter behind it."""

PICK = (
    rf"(?:{_EDGE}(?i:pick|choose|chose|select|selected|go(?:ing)?\s+with|went\s+with|opt\s+for|settle\s+on|say"
    r"|prefer|favou?rs?|supports?|suggests?|points?\s+to|indicates?|conclude|corresponds?\s+to|match(?:es)?|leaves"
    r"|lean(?:ing)?\s+towards?|consistent\s+with|compatible\s+with|wähle|nehme|choisis|choisirais|opte\s+pour|elijo|elegiría|escojo|escolho|scelgo"
    rf"|выбираю|выберу|kies|wybieram|seçiyorum|chọn|memilih|pilih){_END}|选择|選擇|选|選)"
)
"""Verbs of choice."""

RIGHT = (
    r"\s*(?:选项|選項|项|項|番|번)?\s*(?:が|は|가|이)?\s*(?:是|(?i:\b(?:is|seems|appears|looks|fits|ist|est|es|é|è|to|jest|är)\b))?"
    r"(?:\s*(?i:\b(?:to\s+be|the|most|clearly|likely|probably|only|die|der|das|la|le|el|a|o|it|video|frames|ma)\b)){0,6}\s*"
    r"(?:(?i:\b(?:right(?!\s+(?:there|here|on|at|in|after|before|next|side))|correct|best|true|answer|one|plausible|closest|consistent|likeliest"
    r"|richtige?|korrekte?|correcte?|correcta|correta|corretta|bonne|exacte|верно|верный|правильный|juist)\b)"
    r"|正确|正確|(?<!不)对|(?<!不)對|正解|正しい|정답|맞)"
)
"""Behind a letter: is right, ist richtig, 正确."""

INTERJECTION = (
    r"(?:sure|okay|ok|yes|well|certainly|therefore|thus|hence|so|then|ergo|probably|likely|most\s+likely|definitely"
    r"|clearly|obviously|final(?:ly)?|conclusion|in\s+conclusion|answer|correct|verdict|prediction|my\s+pick|my\s+guess"
    r"|guess|(?:my\s+)?best\s+guess|if\s+i\s+had\s+to\s+(?:guess|choose|pick)|without\s+(?:a\s+|any\s+)?doubt"
    r"|no\s+doubt|beyond\s+doubt|also|daher|deshalb|somit|donc|alors|por\s+tanto|así\s+que|portanto|quindi"
    r"|итак|значит|因此|所以|故|综上所述|したがって|よって|따라서)"
)
"""Words that may stand before a letter alone in its sentence."""

CERTAIN = re.compile(
    r"\b(?:no|without|beyond)\s+(?:a\s+|any\s+)?(?:doubt|question)\b|\bohne\s+(?:jeden\s+)?zweifel\b"
    r"|\bsans\s+(?:aucun\s+)?doute\b|\bsin\s+(?:ninguna\s+)?duda\b|\bsem\s+dúvida\b|\bsenza\s+dubbio\b|\bбез\s+сомнения\b"
    r"|\bif\s+i\s+(?:had|have)\s+to\s+(?:guess|choose|pick)\b|\bnot\s+only\b",
    re.IGNORECASE,
)
"""Denials that deny nothing."""

DENIED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|no|without|unlikely|except|excluding|unless|if|whether|why|suppose"
    r"|assuming|rather\s+than|instead\s+of|rule[sd]?\s+out|eliminat\w+|incorrect|wrong|nicht|kein\w*|weder|falls|wenn"
    r"|pas|ni|jamais|nunca|né|não|non|mai|не|ни|если|niet|geen|nie|inte|ikke|değil|không|bukan|tidak|नहीं)\b|n't\b"
    r"|不(?:是|选|選|应|應|能|可能|对|對)|并非|並非|排除|如果|(?<!\w)(?:ليست|ليس|لا|לא|אינה)(?!\w)|ไม่",
    re.IGNORECASE,
)
"""In the clause before a letter: it is denied, or only a condition."""

DENIED_AFTER = re.compile(
    r"[^.!?。!\n,、]{0,12}?(?:ではありません|ではない|じゃない|ではなく|아닙니다|아니다|아니에요|아니라|değil|नहीं"
    r"|不正确|不正確|不对|不對|错误|錯誤)|\s*(?:is|ist|est|es|é|è)\s+(?:not|nicht|pas|no|não|non|wrong|incorrect|falsch)\b"
    r"|\s*n'est\b|\s*isn't\b",
    re.IGNORECASE,
)
"""Right behind a letter."""

GIVEN_UP = re.compile(
    r"\b(?:earlier|previous|previously|initial|initially|original|originally|at\s+first|first)\b",
    re.IGNORECASE,
)
"""In the clause of a letter: it was another answer than the one that holds."""
