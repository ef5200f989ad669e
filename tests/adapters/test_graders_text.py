"""Graders of text, numbers and letters against answers as models write them, and against text made to hang them."""

from typing import Any

import pytest

from fsrun.adapters.graders import Grade, choice, exact, numeric
from fsrun.adapters.graders.final import boxes, cues, last_box, marked, opens_thinking, part
from fsrun.adapters.graders.numbers import several, single

CHOICES = [
    ("I think A is wrong, so answer B.", "B", True),
    ("C looks right at first, but it is not. I would answer **B**", "B", True),
    ("I choose a coordinate system first. (B)", "B", True),
    ("So answer A is wrong. Answer: B", "B", True),
    ("Then answer A is wrong, and so (B) it is.", "B", True),
    ("I will answer a question. The answer is B.", "B", True),
    ("(A)", "A", True),
    ("**B**", "B", True),
    ("Answer: C", "C", True),
    ("The answer is A. Wait, no. The answer is C.", "C", True),
    ("The answer is A. Wait, no. The answer is C.", "A", False),
    ("B", 1, True),
    ("B", "1", True),
    ("\\boxed{\\text{(A)}}", "A", True),
    ("\\boxed{D}", "D", True),
    ("A or B", "A", False),
    ("The answer is A or B.", "A", False),
    ("Answer: (D) Because...", "D", True),
    ("The correct answer is **C**.", "C", True),
    ("**Answer:** B", "B", True),
    ("**Answer: B**", "B", True),
    ("The correct option is (D) Paris.", "D", True),
    ("I think it is A good idea. Answer: B.", "B", True),
    ("Option C is correct.", "C", True),
    ("(C) is correct because", "C", True),
    ("I'd choose B", "B", True),
    ("答案是C", "C", True),
    ("答案：D", "D", True),
    ("The answer is I think B", "B", False),
    ("answer: b", "B", True),
    ("b", "B", True),
    ("b)", "B", True),
    ("A. Paris", "A", True),
    ("A) Paris is the capital", "A", True),
    ("The capital is Paris.\n\nA", "A", True),
    ("Let me think. A triangle has...", "A", False),
    ("A triangle has three sides.", "A", False),
    ("I do not know", "I", False),
    ("Not B. So (C).", "C", True),
    ("The answer is not B. The answer is C", "C", True),
    ("**C. Rome**", "C", True),
    ("**C. Rome**", "2", True),
    ("Final Answer: The final answer is $\\boxed{J}$. I hope it is correct.", "J", True),
    ("The answer is (J)", "J", True),
    ("<b>C</b>", "C", False),
    ("Answer: C\n\nExplanation: A is wrong as it ... B is wrong", "C", True),
    ("The best answer is D because A is false.", "D", True),
    ("The correct choice is: E", "E", True),
    ("So the answer is $\\text{B}$", "B", True),
    ("So the answer is \\textbf{(B)}", "B", True),
    ("Answer: A, B, C, D are wrong", "A", False),
    ("", "A", False),
    ("Answer:\nC", "C", True),
    ("Answer: [C]", "C", True),
    ("Answer: 'C'", "C", True),
    ('Answer: "C"', "C", True),
    ("Correct answer: C) foo", "C", True),
    ("### Answer\nC", "C", True),
    ("The answer to this question is C.", "C", True),
    ("answer is C", "C", True),
    ("ANSWER: C", "C", True),
    ("The right answer would be C.", "C", True),
    ("My answer: C", "C", True),
    ("Answer - C", "C", True),
    ("Answer C", "C", True),
    ("Answer is option C", "C", True),
    ("Answer: Option (C)", "C", True),
    ("**Final Answer**\n\nC", "C", True),
    ("The correct answer is:\n\n**C) Rome**", "C", True),
    ("The answer is (A) not (B)", "A", True),
    ("It must be (B), not (A).", "B", False),
    ("The answer is **(B) 12**.", "B", True),
    ("Therefore, the correct answer is option **C**.", "C", True),
    ("A is correct.", "A", True),
    ("Thus, choice (D).", "D", True),
    ("Thus, choice D.", "D", True),
    ("ANSWER: (c)", "C", True),
    ("The answer is c) Paris", "C", True),
    ("I'm going with D", "D", True),
    ("Correct answer: **B**\n\n**Explanation:** option A is not correct, since (A) is wrong", "B", True),
    ("<answer>C</answer>", "C", True),
    ("The answer is: A, because", "A", True),
    ("The answer is C, not D.", "C", True),
    ("(A) Paris (B) London The answer is (B)", "B", True),
    ("(A) Paris\n(B) London\n(C) Rome\n(D) Bonn", "D", False),
    ("(A) Paris\n(B) London\n(C) Rome\n(D) Bonn", "A", False),
    ("A. Paris\nB. London\nC. Rome", "A", False),
    ("**A.** x\n**B.** y\n**C.** z", "C", False),
    ("Let's see. (A) is too small and (B) too large.\nSo it is (C).", "C", True),
    ("Vitamin C", "C", False),
    ("B.\n\nBecause A is wrong.", "B", True),
    ("The correct answer is (A).\n\nHowever, on reflection the correct answer is (B).", "B", True),
    ("Answer: **D. All of the above**", "D", True),
    ("The answer is D: all", "D", True),
    ("Answer:B", "B", True),
    ("答案是 (B)。", "B", True),
    ("答案为B", "B", True),
    ("The answer is (B", "B", True),
    ("It's B.", "B", False),
    ("Answer: $\\boxed{\\textbf{(E)}\\ 5}$", "E", True),
    ("\\boxed{\\textbf{(C) } 12}", "C", True),
    ("\\boxed{C: Rome}", "C", True),
    ("\\boxed{A, C}", "A", False),
    ("\\boxed{\\mathrm{B}}", "B", True),
    ("Based on this, the best choice is A.", "A", True),
    ("I think the answer might be B", "B", False),
    ("Option B", "B", True),
    ("Choice: B", "B", True),
    ("The answer is E. None of the above", "E", True),
    ("My final answer is D", "D", True),
    ("I would select option (B).", "B", True),
    ("Answer : B", "B", True),
    ("answer is: (B)", "B", True),
    ("Therefore, D is the correct answer.", "D", True),
    ("A", "A", True),
    ("I", "I", True),
    ("The answer is I.", "I", True),
    ("answer: none", "N", False),
    ("B) because A) is wrong", "B", True),
]
NUMBERS = [
    ("#### 18", "18", True),
    ("blah\n#### 1,234", "1234", True),
    ("The answer is 42.", "42", True),
    ("She has 3 apples and 4 pears, so 7 in total.", "7", True),
    ("\\boxed{004}", "4", True),
    ("2,552,004 \\boxed{004}", "4", True),
    ("28 %", "28", True),
    ("28%", "0.28", True),
    ("50 %", "0.5", True),
    ("50", "0.5", False),
    ("50", "5000", False),
    ("The answer is $1,000.50.", "1000.5", True),
    ("The answer is 5 + 3 = 8 apples.", "8", True),
    ("The answer is 42 apples for 3 people.", "42", True),
    ("Answer: She has 3 apples and buys 4. The total is 7.", "7", True),
    ("So 12:00", "1:00", False),
    ("So 12:00", "12:00", True),
    ("\\boxed{\\pm 2021}", "2021", False),
    ("1728", "1331 and 1728", False),
    ("\\boxed{1331, 1728}", "1331 and 1728", True),
    ("\\boxed{n=1,2,3}", "n=2,3,4", False),
    ("\\boxed{n=2,3,4}", "n=2,3,4", True),
    ("Therefore, she makes $18 every day at the farmers' market.", "18", True),
    (
        "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 duck eggs a day.\nShe makes 9 * 2 = $<<9*2=18>>18.\n#### 18",
        "18",
        True,
    ),
    ("The total is **$70,000**.", "70000", True),
    ("The answer is \\boxed{\\$70{,}000}", "70000", True),
    ("x = 5.", "5", True),
    ("-5", "5", False),
    ("−5", "-5", True),
    ("The temperature is -5 degrees", "-5", True),
    ("\\boxed{\\frac{3}{4}}", "0.75", True),
    ("3/4", "0.75", True),
    ("0.333", "1/3", False),
    ("1.5 million", "1500000", True),
    ("It costs $1.5 million", "1.5", True),
    ("answer: 5", "Natalia sold 48/2 = 24\n#### 5", True),
    ("\\boxed{5} and #### 6", "6", True),
    ("#### 6 and \\boxed{5}", "5", True),
    ("\\boxed{12", "12", False),
    ("I got 7 then \\boxed{12", "7", True),
    ("1e3", "1000", True),
    ("3 \\times 10^8", "300000000", True),
    ("20 minutes", "20", True),
    ("Final Answer: The final answer is $\\boxed{540}$. I hope it is correct.", "540", True),
    ("5!", "5", True),
    ("No idea.", "5", False),
    ("", "5", False),
    ("Answer: 1/2 cup", "0.5", True),
    ("2 1/2 hours", "2.5", True),
    ("$2\\frac{1}{2}$", "5/2", True),
    ("It is 5,5", "5.5", False),
    ("the answer is therefore 64 miles", "64", True),
    ("The final answer is: **26**", "26", True),
    ("Thus the answer is\n\n\\[ 45 \\]", "45", True),
    ("5 dollars and 50 cents. #### 5.50", "5.5", True),
    ("\\boxed{45^\\circ}", "45", True),
    ("\\boxed{45 \\text{ cm}^2}", "45", True),
    ("\\boxed{x=45}", "45", True),
    ("\\boxed{2x}", "2", False),
    ("\\boxed{3+4=7}", "7", True),
    ("She needs 100% of 20 = 20", "20", True),
    ("The answer is 3 hours and 20 minutes", "200", False),
    ("18.00", "18", True),
    (".5", "0.5", True),
    ("100,000,000", "100000000", True),
    ("Let's break it down:\n1. 3 x $4 = $12\n2. Total = $12 + $5 = $17\n\nSo, the total cost is **$17**.", "17", True),
    ("**Answer: 42 miles**", "42", True),
    ("Final answer: 3/4 of the pie", "3/4", True),
    ("The answer is 5 (five).", "5", True),
    ("Answer: 24 (since 6*4=24)", "24", True),
    ("The answer is 3 because 1+2=3 and not 2+2=4.", "3", True),
    ("The answer is $18 * 2 = $36", "36", True),
    ("The answer is approximately 3.14.", "3.14", True),
    ("the answer is about $1,200 per month", "1200", True),
    ("So the share is 0.6 = 60%", "60", True),
    ("It takes 2 hours and 30 minutes, i.e., 150 minutes.", "150", True),
    ("Answer: 1.5 hours (90 minutes)", "1.5", True),
    ("The number of ways is 10C3 = 120.", "120", True),
    ("Answer:\n```\n42\n```", "42", True),
    ("Answer:\n- 42", "42", True),
    ("so 8 - 3", "3", True),
    ("x = - 5", "-5", True),
    ("between 10–15", "15", True),
    ("It is **-5**.", "-5", True),
    ("It is (−3).", "-3", True),
    ("<answer>42</answer>", "42", True),
    ("The answer is 7:30 PM", "7:30", True),
    ("20", "20%", True),
    ("0.2", "20%", True),
    ("It is 5 dollars. #### 5", "5", True),
    ("The answer is: $\\boxed{1{,}250}$ dollars", "1250", True),
    ("Answer: 2/3", "0.667", False),
    ("The answer is 0.1 + 0.2 = 0.3.", "0.3", True),
    ("The answer is 12,5", "12.5", False),
    ("Answer: 1 000", "1000", False),
    ("The answer is negative 5", "-5", False),
    ("The answer is 1e-3", "0.001", True),
    ("total=42", "42", True),
    ("42km", "42", True),
    ("$42/hour", "42", True),
    ("He pays 3 for $2.50 each = $7.50.", "7.5", True),
    ("The answer is 3,000,000 people", "3 million", True),
    ("Thus 6! = 720", "720", True),
    ("R$ 50,00", "50", False),
    ("The final answer is: $\\frac{11}{4}$", "2.75", True),
    ("the answer is 2 3/4 cups", "2.75", True),
    ("Answer = 12", "12", True),
    ("The answer is\n42", "42", True),
    ("ANSWER IS 42", "42", True),
    ("## Final answer\n42", "42", True),
    ("So the answer is \\(42\\).", "42", True),
    ("The answers are 3 and 4", "3 and 4", True),
    ("The answers are 3 and 5", "3 and 4", False),
    ("answer: 4 and 3", "3, 4", True),
]
WITH_OPTIONS = [
    ("The answer is Paris", "A", True),
    ("Paris", "A", True),
    ("Rome.", 2, True),
    ("The answer is Rome.", "Rome", True),
    ("\\boxed{Rome}", "C", True),
    ("E", "A", False),
    ("The answer is E.", "A", False),
]
TEXTS = [
    ("  42 ", "42", True),
    ("42.", "42", True),
    ("**Paris**", "Paris", True),
    ("paris", "Paris", False),
    ("\\boxed{Paris}", "Paris", True),
    ("Long reasoning.\n\nAnswer: Paris", "Paris", True),
    ("It is Paris", "Paris", False),
    ("a  b\nc", "a b c", True),
    ("e\u0301", "\u00e9", True),
    ("x", ["y", "x"], True),
    ("59", 59, True),
    ("", "x", False),
]
HOSTILE = {
    "open braces": "{" * 200_000,
    "open boxes": "\\boxed{" * 30_000,
    "empty boxes": "\\boxed{}" * 24_000,
    "backslashes": "\\" * 200_000,
    "cues": "answer is " * 20_000,
    "spaces": " " * 200_000,
    "lines": "\n" * 200_000,
    "digits": "1" * 200_000,
    "numbers": "1 " * 100_000,
    "list": "1," * 100_000,
    "thousands": "111," * 50_000,
    "fractions": "\\frac{1}{" * 22_000,
    "letters": "A " * 100_000,
    "parentheses": "(A) " * 50_000,
    "asterisks": "*" * 200_000,
    "bold": "**A " * 50_000,
    "equations": "x=" * 100_000,
    "minus": "-" * 200_000,
    "halves": "\u00bd" * 200_000,
    "times": "1:" * 100_000,
    "marks": "#### 1\n" * 28_000,
    "options": "option A " * 22_000,
    "thinking": "<think>" * 30_000,
    "one box": "\\boxed{" + "1, " * 60_000 + "}",
}


@pytest.mark.parametrize(("answer", "label", "right"), CHOICES)
def test_a_choice_is_what_is_stated_last(answer: str, label: Any, right: bool) -> None:
    grade = choice.grade(answer, label, {})
    assert (grade.score, grade.correct) == (float(right), right), grade


@pytest.mark.parametrize(("answer", "label", "right"), WITH_OPTIONS)
def test_a_choice_may_be_given_by_its_text_where_the_row_has_them(answer: str, label: Any, right: bool) -> None:
    assert choice.grade(answer, label, {"choices": ["Paris", "London", "Rome", "Berlin"]}).correct is right


@pytest.mark.parametrize("label", ["", None, True, "nothing", [], 40])
def test_a_label_that_is_no_choice_leaves_the_answer_ungraded(label: Any) -> None:
    assert choice.grade("B", label, {}) == Grade(None, reason="the label is no choice")


def test_labels_of_choices_are_letters_indexes_and_lists_of_them() -> None:
    for label in ("B", "(B)", "b", "B.", "B. London", 1, "1", ["A", "B"], "**B**"):
        assert choice.grade("The answer is B.", label, {}).correct is True, label
    assert choice.grade("L", "L", {}).correct is True
    assert choice.grade("L", "A", {}).correct is False


def test_a_letter_is_a_letter_also_where_it_is_the_text_of_another_choice() -> None:
    blood = {"choices": ["B", "AB", "A", "O"]}
    assert choice.grade("Answer: A", "A", blood).correct
    assert not choice.grade("Answer: C", "A", blood).correct


def test_choices_are_found_under_usual_names() -> None:
    for row in (
        {"options": ["x", "y"]},
        {"choices": {"text": ["x", "y"], "label": ["1", "2"]}},
        {"choices": [{"text": "x"}, {"text": "y"}]},
        {"A": "x", "B": "y"},
    ):
        assert choice.grade("y", "B", row).correct is True
        assert choice.grade("C", "B", row).extracted is None


@pytest.mark.parametrize(("answer", "label", "right"), NUMBERS)
def test_a_number_is_the_one_that_an_answer_ends_with(answer: str, label: Any, right: bool) -> None:
    grade = numeric.grade(answer, label, {})
    assert (grade.score, grade.correct) == (float(right), right), grade


@pytest.mark.parametrize("label", ["", None, "yes", "1/2004!", "x + 1", "\\frac{\\pi}{4}"])
def test_a_label_that_is_no_number_leaves_the_answer_ungraded(label: Any) -> None:
    assert numeric.grade("5", label, {}) == Grade(None, reason="the label is no number")


def test_labels_may_be_numbers_and_lists() -> None:
    assert numeric.grade("0.1", 0.1, {}).correct is True
    assert numeric.grade("18", ["17", "18"], {}).correct is True
    assert numeric.grade("16", ["17", "18", "unknown"], {}).correct is False


@pytest.mark.parametrize(
    "text",
    [
        "5!",
        "2^{10}",
        "\\frac{\\pi}{4}",
        "3\\sqrt{2}",
        "\\pm 2021",
        "12:00",
        "2x",
        "10-5",
        "7/0",
        "1e999999",
        "9" * 500,
        "five",
    ],
)
def test_what_is_more_than_a_number_is_none(text: str) -> None:
    assert single(text) is None


def test_lists_of_numbers_are_read_in_order() -> None:
    assert [str(value) for value in several("n = 2, 3 and 1,000") or []] == ["2", "3", "1000"]
    assert several("2, x") is None
    assert several("") is None


@pytest.mark.parametrize(("answer", "label", "right"), TEXTS)
def test_text_is_equal_but_for_spaces_and_marks(answer: str, label: Any, right: bool) -> None:
    grade = exact.grade(answer, label, {})
    assert (grade.score, grade.correct) == (float(right), right), grade


def test_an_empty_label_leaves_the_answer_ungraded() -> None:
    assert exact.grade("x", " ", {}).score is None
    assert exact.grade("", None, {}).score is None


def test_the_last_closed_box_that_holds_something_counts() -> None:
    assert last_box(r"\boxed{3} and \boxed{\frac{1}{2}") == "3"
    assert last_box(r"\boxed{5}, in \boxed{}") == "5"
    assert last_box(r"\boxed{\boxed{9}}") == "9"
    assert last_box(r"\boxed{a\}b} }") == r"a\}b"
    assert last_box(r"\\boxed {8}") == "8"
    assert boxes(r"x \boxed{1").unclosed == 2


def test_marks_and_cues_are_found_from_the_end() -> None:
    assert marked("#### 5\nmore\n#### 1,234 \nend") == "1,234"
    assert marked("####\n") is None
    assert [said for _, said in cues("The answer is 5. So the final answer is:\n\n**6** apples.")] == [
        "6** apples.",
        "5. So the",
    ]


@pytest.mark.parametrize(
    ("text", "answer", "finished"),
    [
        ("no thinking", "no thinking", True),
        ("<think>a</think>b", "b", True),
        ("a</think>b", "b", True),
        ("<think>a</think>b</think>c", "c", True),
        ("<think>a", "", False),
        ("b<think>a", "b", False),
        ("<think>a</think>b<think>c", "b", False),
        ("[THINK]a[/THINK]b", "b", True),
        ("<thinking>a</thinking>b", "b", True),
        ("", "", True),
    ],
)
def test_the_answer_follows_the_thinking(text: str, answer: str, finished: bool) -> None:
    parted = part(text)
    assert (parted.answer, parted.finished) == (answer, finished)


def test_a_prompt_may_open_the_thinking() -> None:
    assert opens_thinking("<|user|>2+2?<|assistant|><think>\n")
    assert not opens_thinking("<|user|>2+2?<|assistant|><think>\n\n</think>\n")
    assert opens_thinking("<|user|>2+2?<|assistant|>[THINK]")
    assert part(r"so \boxed{5}", thinking=True).finished is False
    assert part(r"so </think> \boxed{5}", thinking=True).answer == r" \boxed{5}"


@pytest.mark.parametrize(
    "prompt",
    [
        "<|system|>Reason between <think> and an end tag.<|user|>2+2?<|assistant|>",
        "<|user|>What does the tag <think> do?<|assistant|>",
        "<|user|>[THINK] or not?<|assistant|>",
        "<|user|>2+2?<|assistant|><think>4</think><|user|>And <think>?<|assistant|>\n",
    ],
)
def test_a_prompt_that_speaks_of_thinking_does_not_open_it(prompt: str) -> None:
    assert not opens_thinking(prompt)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_long_text_of_any_kind_is_graded(text: str) -> None:
    # What takes time that is not linear in the text runs into the test's time limit.
    for grade in (
        exact.grade(text, "five", {}),
        numeric.grade(text, "5", {}),
        numeric.grade(text, "2, 3", {}),
        choice.grade(text, "J", {}),
    ):
        assert grade.score == 0.0


def test_a_megabyte_is_graded() -> None:
    reasoning = "So 1,234 apples and (A) \\boxed{3} of {them} is the answer: 17. " * 16_000
    assert len(reasoning) > 10**6
    assert exact.grade(reasoning + "\\boxed{x}", "x", {}).correct is True
    assert numeric.grade(reasoning + "\\boxed{7}", "7", {}).correct is True
    assert choice.grade(reasoning + "\\boxed{B}", "B", {}).correct is True
