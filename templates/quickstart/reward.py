"""The quickstart's reward: the digits after `#` must be the sum.

A reward of your own looks like this: TRL's signature, one number from 0 to 1 per completion. `answer` is a
column of the data file.
"""


def right_sum(completions, answer, **kwargs):
    """1.0 where the text after the last `#` is exactly the answer, else 0.0."""
    return [
        1.0 if completion.rsplit("#", 1)[-1] == gold and "#" in completion else 0.0
        for completion, gold in zip(completions, answer, strict=True)
    ]
