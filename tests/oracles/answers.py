"""SQuAD's comparison of answers, character by character."""

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def words(text):
    """Lower case, without ASCII punctuation, without articles that stand alone."""
    out, run = [], ""
    for character in [c for c in text.lower() if c not in PUNCTUATION] + [" "]:
        if character.isalnum():
            run += character
        else:
            out.append(" " if run in ("a", "an", "the") else run)
            out.append(character)
            run = ""
    return "".join(out).split()


def f1(answer, gold):
    """Of one gold answer: each word of the answer is matched with at most one word of the gold."""
    said, left = words(answer), words(gold)
    if not said or not left:
        return float(said == left)
    length, common = len(left), 0
    for word in said:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / length
    return 2 * precision * recall / (precision + recall)
