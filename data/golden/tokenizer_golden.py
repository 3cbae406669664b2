"""Makes tokenizer_*.json: some small byte-level BPE tokenizers and what Hugging Face's
own package makes of some texts.

    python tokenizer_golden.py STORIES FOLDER      (tokenizers 0.23)

STORIES is data/stories.txt of a build.  In each file "tokenizer" is the whole of a
tokenizer.json, "cases" are {"hex": bytes of a text, "ids": without special tokens,
"special": with them, and, if it is not the
text again, "back": what the ids are decoded to}; bytes that are not UTF-8 are replaced as Python's
errors="replace" does, before the package gets the text.
"""

import json
import pathlib
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers,
                        processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def train(tokenizer, text, size, special):
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=ALPHABET,
                                  special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)


def gpt2(text):
    """As GPT-2's: merges are written "a b", one special token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, text, 700, ["<|endoftext|>"])
    return tokenizer


def gpt2_spaced(text):
    """The same with a space before the text, and added tokens within each other."""
    tokenizer = gpt2(text)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_tokens([AddedToken("fox", normalized=True),
                          AddedToken("foxes", normalized=True)])
    tokenizer.add_special_tokens([AddedToken("xes<", normalized=False)])
    return tokenizer


def llama3(text):
    """As Llama 3's: pairs, pieces that are tokens as they are, a token before."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, text, 600, [])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
            special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def blanks(_):
    """Whose merges tell whether a piece ends before a character: \\s, \\S, and \\s in a set."""
    vocab = {letter: number for number, letter in enumerate(sorted(ALPHABET))}
    first = {pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(c)[-1][0][0]
             for c in BLANKS}
    merges = [(letter, byte) for letter in "ab" for byte in sorted(first)]
    vocab.update({"".join(pair): 256 + i for i, pair in enumerate(merges)})
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"a\S+|b[^\s]+|\s+|."), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# All that some table calls white space, and their neighbours.
BLANKS = [chr(c) for c in [*range(0x21), 0x7f, *range(0x80, 0xa2), 0xad, 0x1680, 0x180d, 0x180e,
                           0x180f, *range(0x1fff, 0x2010), *range(0x2027, 0x2031),
                           *range(0x205e, 0x2065), 0x2800, 0x3000, 0x3001, 0x3164, 0xfeff, 0xffa0]]
BY_HAND = [
    "", " ", "a", "\n", "Once upon a time", "Once upon a time,\n\n  there was a fox.",
    "I'm you're they've we'll he'd it's don't 'S 'RE 'Ll ''' 's't",
    "I'M YOU'RE THEY'VE WE'LL HE'D IT'S DON'T '\u017f it'\u017ft", "x'sx 'tis 'll",
    "0 1 12 123 1234 12345 1234567 3.14 1,000,000 2nd \u00bd \u00b2 \u2167 \u0664\u0665",
    "    four blanks,\ttab\t\ttabs \n \n\n  \r\n\r\n end  ", "trailing   ", "\n\n\n", "   ",
    " \n \n x", "\u00a0no-break\u00a0\u00a0space \u3000ideographic\u3000 \u2003em",
    "\u180evowel\u180e separator \u200bzero\u200b \ufeffmark \x85next\x85 \x1funit\x1c",
    "caf\u00e9 cafe\u0301 na\u00efve \u00df\u1e9e \u01c5 \u0130\u0131",
    "\u65e5\u672c\u8a9e\u306e\u6587 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0939\u093f\u0928"
    "\u094d\u0926\u0940 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f!! \U0001d54f\U00020000",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> \n", "<|endoftext|", "<<|endoftext|>>",
    "<|begin_of_text|>x<|end_of_text|><|end_of_text|>", "fox foxes foxes<", "afoxesxes<fox",
    "def f(x):\n    return {'a': [x+1, \"b\"]}  # ...\n\n\n", "http://a.b/c?d=e&f=%20#g",
    "a" * 300, "ab" * 200, " " * 70 + "x", "\n" * 40, "th" * 100 + "e",
    "!!!???...---___***\r\n\r\n", "$1,234.56 (+7%)", "\ue000\U000f0000\ufffd",
    b"\xff\xfe latin-1: caf\xe9 \x80\x80", b"cut \xe2\x82", b"\xf0\x9f\x98 \xed\xa0\x80 \xc0\xaf",
    b"\xf4\x90\x80\x80 \xe2\x28\xa1 \xf0\x28\x8c\xbc", b"good \xc3\xa9 bad \xc3 good",
]
PIECES = [" ", "  ", "\n", "\t", "\r\n", "'s", "'T", "'ll", "the", "The", " fox", "123", "7",
          "\u00e9", "\u4e2d", "\u00a0", "!", "?!", "<|endoftext|>", "\U0001f600", "\u0301",
          "e", "zz", "Q", "_", "-", "\u00bd", "\u3000", "\u2028", "'"]


def texts(stories):
    random.seed(7)
    start = stories.index("\n\n") + 2
    yield from (t if isinstance(t, bytes) else t.encode() for t in BY_HAND)
    yield stories[start:start + 2000].encode()
    for _ in range(60):
        yield "".join(random.choices(PIECES, k=random.randint(1, 25))).encode()
    for _ in range(30):
        yield bytes(random.choices(range(256), k=random.randint(1, 12)))


def write(name, tokenizer, texts, folder, as_strings):
    cases = []
    for text in texts:
        sound = text.decode(errors="replace")
        cases.append({
            "hex": text.hex(),
            "ids": tokenizer.encode(sound, add_special_tokens=False).ids,
            "special": tokenizer.encode(sound).ids})
        back = tokenizer.decode(cases[-1]["ids"], skip_special_tokens=False)
        cases[-1].update({} if back == sound else {"back": back.encode().hex()})
    file = json.loads(tokenizer.to_str())
    if as_strings:
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
        assert Tokenizer.from_str(json.dumps(file)).to_str() == tokenizer.to_str()
    path = pathlib.Path(folder, f"tokenizer_{name}.json")
    path.write_text(json.dumps({"tokenizer": file, "cases": cases}, ensure_ascii=False,
                               separators=(",", ":")) + "\n")


def main():
    stories = pathlib.Path(sys.argv[1]).read_text()
    for name, make, as_strings in [("gpt2", gpt2, True), ("spaced", gpt2_spaced, True),
                                   ("llama3", llama3, False)]:
        write(name, make(stories), texts(stories), sys.argv[2], as_strings)
    write("blanks", blanks(stories), [(x + c + x).encode() for c in BLANKS for x in "ab "],
          sys.argv[2], False)


main()
