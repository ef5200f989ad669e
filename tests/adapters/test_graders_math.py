"""The grader of mathematics against math-verify as it is: answers as models write them, and hostile ones."""

import time
from typing import Any

import pytest

from fsrun.adapters.graders import Grade, expressions, mathematics

ANSWERS = [
    ("\\boxed{840}.,but ... \\boxed{840}", "840", True),
    ("\\boxed{3} early and \\boxed{4}", "4", True),
    ("\\boxed{3} early and \\boxed{4}", "3", False),
    ("\\boxed{}", "4", False),
    ("\\boxed{\\frac{1}{2}", "\\frac{1}{2}", False),
    ("\\boxed{\\frac{1}{2}", "2", False),
    ("\\boxed{\\text{(A)}}", "A", True),
    ("\\boxed{\\text{(A)}}", "(A)", True),
    ("\\fbox{7}", "7", True),
    ("2,552,004 \\boxed{004}", "4", True),
    ("\\boxed{4}", "004", True),
    ("\\boxed{1/2006!}", "1/2004!", False),
    ("\\boxed{1/2004!}", "\\frac{1}{2004!}", True),
    ("\\boxed{2021}", "\\pm 2021", False),
    ("\\boxed{\\pm 2021}", "2021", False),
    ("\\boxed{\\pm 2021}", "2021, -2021", True),
    ("\\boxed{1:00}", "12:00", False),
    ("\\boxed{12:00}", "1:00", False),
    ("\\boxed{1728}", "1331 and 1728", False),
    ("\\boxed{1728, 1331}", "1331 and 1728", True),
    ("\\boxed{n=1,2,3}", "n=2,3,4", False),
    ("\\boxed{n=2,3,4}", "n=2,3,4", True),
    ("\\boxed{2,3,4}", "n=2,3,4", True),
    ("\\boxed{3x+4y+14=0}", "3x-y+13=0", False),
    ("\\boxed{6x-2y+26=0}", "3x-y+13=0", True),
    ("\\boxed{y=3x+13}", "3x-y+13=0", True),
    ("\\boxed{28\\%}", "28", True),
    ("\\boxed{28}", "28\\%", True),
    ("\\boxed{50\\%}", "0.5", True),
    ("\\boxed{50}", "0.5", False),
    ("\\boxed{0.5}", "50", False),
    ("\\boxed{50}", "5000", False),
    ("\\boxed{5000}", "50", False),
    ("\\boxed{10^{-21}}", "10^{-20}", False),
    ("\\boxed{e^{-60}}", "e^{-50}", False),
    ("\\boxed{(x+1)^2}", "x^2+2x+1", True),
    ("\\boxed{x^2+2x+2}", "x^2+2x+1", False),
    ("\\boxed{\\frac{\\sqrt{2}}{2}}", "1/\\sqrt{2}", True),
    ("\\boxed{(1,2)}", "(1,2)", True),
    ("\\boxed{(2,1)}", "(1,2)", False),
    ("\\boxed{[1,2]}", "[1,2)", False),
    ("\\boxed{[1,2)}", "[1,2)", True),
    ("\\boxed{\\{2,1\\}}", "\\{1,2\\}", True),
    ("\\boxed{\\{1\\}}", "\\{1,2\\}", False),
    ("\\boxed{x>3}", "x>2", False),
    ("\\boxed{x>2}", "2<x", True),
    ("\\boxed{2\\pi}", "2\\pi", True),
    ("\\boxed{6.28}", "2\\pi", False),
    ("\\boxed{6.283185}", "2\\pi", True),
    ("\\boxed{0.333333}", "1/3", True),
    ("\\boxed{0.33}", "1/3", False),
    ("\\boxed{x=5}", "5", True),
    ("\\boxed{5}", "x=5", True),
    ("\\boxed{y=5}", "x=5", False),
    ("\\boxed{3+4=7}", "7", True),
    ("\\boxed{\\text{yes}}", "\\text{no}", False),
    ("\\boxed{\\text{Yes}}", "Yes", True),
    ("\\boxed{\\infty}", "\\infty", True),
    ("\\boxed{-\\infty}", "\\infty", False),
    ("\\boxed{\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}}", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", True),
    ("\\boxed{\\begin{pmatrix}1&2\\\\3&5\\end{pmatrix}}", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", False),
    ("\\boxed{90^\\circ}", "90", True),
    ("\\boxed{120}", "\\binom{10}{3}", True),
    ("\\boxed{2\\sqrt{3}+1}", "1+2\\sqrt3", True),
    ("\\boxed{\\dfrac{3}{4}}", "\\frac34", True),
    ("\\boxed{1,000}", "1000", True),
    ("\\boxed{100, 200}", "100,200", True),
    ("\\boxed{(100,200)}", "(100, 200)", True),
    ("\\boxed{2x}", "2", False),
    ("\\boxed{2x}", "2x", True),
    ("\\boxed{x}", "y", False),
    ("\\boxed{\\sqrt{2}i}", "i\\sqrt{2}", True),
    ("\\boxed{1+i}", "1-i", False),
    ("\\boxed{\\frac{1}{3}+\\frac{1}{6}}", "\\frac12", True),
    ("The answer is $\\frac{1}{2}$.", "0.5", True),
    ("Thus, the final answer is 204.", "204", True),
    ("So $x = 2 + 3 = 5$.", "5", True),
    ("Final Answer: The final answer is $204$. I hope it is correct.", "204", True),
    ("We get 204", "204", True),
    ("**Answer:** $\\sqrt{3}$", "\\sqrt{3}", True),
    ("#### 12", "12", True),
    ("", "12", False),
    ("I do not know", "12", False),
    ("\\boxed{\\sin^2 x + \\cos^2 x}", "1", True),
    ("\\boxed{1 \\pm \\sqrt{2}}", "1+\\sqrt{2}, 1-\\sqrt{2}", True),
    ("\\boxed{x = 1 \\pm \\sqrt{2}}", "1 \\pm \\sqrt 2", True),
    ("\\boxed{-1}", "1", False),
    ("\\boxed{(-\\infty, 2) \\cup (3, \\infty)}", "(-\\infty,2)\\cup(3,\\infty)", True),
    ("\\boxed{(-\\infty, 2) \\cup (3, \\infty)}", "(-\\infty,2)\\cup[3,\\infty)", False),
    ("\\boxed{x \\in (2, 3)}", "(2,3)", True),
    ("\\boxed{5\\text{ cm}}", "5", True),
    ("\\boxed{\\$5}", "5", True),
    ("\\boxed{2^{10}}", "1024", True),
    ("\\boxed{2^{1000000}}", "1024", False),
    ("\\boxed{f(x)=2x+1}", "f(x)=1+2x", True),
    ("\\boxed{2x+1}", "f(x)=2x+1", True),
    ("\\boxed{p - q}", "q - p", False),
    ("\\boxed{\\frac{m+n}{2}}", "\\frac{n+m}{2}", True),
    ("\\boxed{033}", "33", True),
    ("\\boxed{m+n=33}", "33", True),
    ("\\boxed{1\\frac{1}{2}}", "1.5", True),
    ("\\boxed{0}", "0", True),
    ("\\boxed{10^{-30}}", "0", False),
    ("\\boxed{5 \\text{ or } 6}", "5,6", True),
    ("\\boxed{\\text{A}, \\text{B}}", "A", False),
    ("\\boxed{\\left(\\frac{1}{2}, 3\\right)}", "(0.5,3)", True),
    ("\\boxed{120^\\circ, 60^\\circ}", "60,120", True),
    ("\\boxed{3 \\times 10^8}", "300000000", True),
    ("\\boxed{\\text{Monday}}", "Tuesday", False),
    ("\\boxed{x^{2}}", "x^2", True),
    ("\\boxed{\\lfloor 2.5 \\rfloor}", "2", True),
    ("\\boxed{\\frac{3}{4}\\text{ miles}}", "3/4", True),
    ("\\boxed{10\\%}", "0.1", True),
    ("\\boxed{x=3, y=-2}", "(3,-2)", True),
    ("\\boxed{-\\frac{1}{2}}", "\\frac{-1}{2}", True),
    ("\\boxed{2\\sqrt{5}}", "\\sqrt{20}", True),
    ("\\boxed{\\text{no solution}}", "No solution", True),
    ("\\boxed{9\\pi\\text{ square units}}", "9\\pi", True),
    ("\\boxed{\\$12.50}", "12.5", True),
    ("\\boxed{3(x+2)(x-1)}", "3x^2+3x-6", True),
    ("\\boxed{\\text{A}}", "A", True),
    ("\\boxed{10110_2}", "10110_2", True),
    ("\\boxed{5 \\le x \\le 7}", "5\\leq x\\leq 7", True),
    ("\\boxed{2^{-3}}", "0.125", True),
    ("\\boxed{x^2}", "2x", False),
    ("\\boxed{\\frac{a}{b}}", "\\frac{b}{a}", False),
    ("\\boxed{-x}", "x", False),
    ("\\boxed{|x|}", "x", False),
    ("\\boxed{\\sqrt{x^2}}", "x", False),
    ("\\boxed{\\text{east}}", "\\text{seat}", False),
    ("\\boxed{east}", "seat", False),
    ("\\boxed{\\emptyset}", "0", False),
    ("\\boxed{0.0000001}", "0", False),
    ("\\boxed{0.000001}", "0.0000015", False),
    ("\\boxed{100!}", "99!", False),
    ("\\boxed{1}", "\\infty", False),
    ("\\boxed{\\text{none}}", "0", False),
    ("\\boxed{(3,-2)}", "(3, -2)", True),
    ("\\boxed{(3,2)}", "(3, -2)", False),
    ("\\boxed{[3,2]}", "(3,2)", False),
    ("\\boxed{1,2,3}", "\\{1,2,3\\}", True),
    ("\\boxed{1,2}", "1,2,2", False),
    ("\\boxed{2,2,1}", "1,2,2", True),
    ("\\boxed{x<3}", "x\\leq 3", False),
    ("\\boxed{x \\ge 2}", "x\\geq 2", True),
    ("\\boxed{[2,\\infty)}", "[2, \\infty)", True),
    ("\\boxed{\\frac{\\pi}{3}}", "60^\\circ", False),
    ("\\boxed{a+b}", "b+a", True),
    ("\\boxed{12\\text{ cm}}", "12\\,\\mathrm{cm}", True),
    ("\\boxed{1.0}", "1", True),
    ("\\boxed{\\frac{1}{0}}", "0", False),
    ("\\boxed{y=2x+3}", "2x-y+3=0", True),
    ("\\boxed{y=2x+4}", "2x-y+3=0", False),
    ("\\boxed{\\log_{10} 100}", "2", True),
    ("\\boxed{\\frac{1+\\sqrt{5}}{2}}", "\\frac{\\sqrt5+1}{2}", True),
    ("\\boxed{1.618034}", "\\frac{\\sqrt5+1}{2}", True),
    ("\\boxed{3+4i}", "4i+3", True),
    ("\\boxed{3-4i}", "4i+3", False),
    ("<answer>\\frac{1}{2}</answer>", "0.5", True),
    ("Hence the answer is $m+n = \\boxed{033}$.", "33", True),
    ("The final answer is 033.", "33", True),
    ("Answer: (3, 4)", "(3,4)", True),
    ("The area is $16\\pi$ square units.", "16\\pi", True),
    ("The answer is 2\\sqrt{3}.", "2\\sqrt{3}", True),
    ("so $x=2$ or $x=3$", "2,3", False),
    ("\\boxed{x=2 \\text{ or } x=3}", "2,3", True),
    ("\\boxed{2} and \\boxed{3}", "2,3", False),
    ("\\boxed{\\dfrac{\\sqrt{3}}{2}}", "\\frac{\\sqrt 3}{2}", True),
    ("\\boxed{\\text{(B)}\\ 5}", "B", False),
    ("\\boxed{1:2}", "1:2", True),
    ("\\boxed{1:2}", "\\frac12", False),
    ("\\boxed{\\overline{AB}}", "\\overline{AB}", True),
    ("\\boxed{2n+1}", "2k+1", False),
    ("\\boxed{540^{\\circ}}", "540", True),
    ("\\boxed{\\tfrac{1}{3}}", "\\frac{2}{6}", True),
    ("\\boxed{1,2,\\ldots,10}", "1,2,\\ldots,10", True),
    ("\\boxed{0.5}", "\\frac{1}{2}", True),
    ("\\boxed{\\frac{1}{2}}", "50\\%", True),
    ("\\boxed{12.0\\%}", "12\\%", True),
    ("\\boxed{100000000000000000001}", "100000000000000000000", False),
    ("\\boxed{1.00000001}", "1", False),
    ("\\boxed{\\sqrt{2}}", "1.414", False),
    ("\\boxed{\\text{Friday}}", "friday", True),
    ("\\boxed{n^2-n+1}", "n^2 - n + 1", True),
    ("\\boxed{\\binom{n}{2}}", "\\frac{n(n-1)}{2}", True),
]
HEAVY = [
    "9^{9^{9^9}}",
    "(10^{10})!",
    "{" * 100_000 + "1" + "}" * 100_000,
    "1" * 1_000_000,
    "2^{999999999}",
    "10000000!",
    "9**9**9**9",
    "x=" * 600 + "1",
    "(" * 200 + "1" + ")" * 200,
]


@pytest.mark.parametrize(("answer", "label", "right"), ANSWERS)
def test_an_answer_is_right_where_it_is_equal(answer: str, label: Any, right: bool) -> None:
    grade = mathematics.grade(answer, label, {})
    assert (grade.score, grade.correct) == (float(right), right), grade


@pytest.mark.parametrize("formula", HEAVY, ids=range(len(HEAVY)))
def test_what_is_too_heavy_is_wrong_and_not_computed(formula: str) -> None:
    grade = mathematics.grade(f"\\\\boxed{{{formula}}}", "5", {})
    assert grade.score == 0.0


def test_what_is_not_compared_in_its_time_is_ungraded_and_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "COMPUTING", 0.05)
    grade = mathematics.grade(r"\boxed{(a+b+c+d+e)^{300}}", "x^2", {})
    assert (grade.score, grade.correct) == (None, None)
    assert grade.reason == "not compared within 0.05 s of computing"
    assert mathematics.grade(r"\boxed{4}", "4", {}).correct is True


def test_the_end_of_the_time_is_not_lost_in_a_callback() -> None:
    class Held:
        def __del__(self) -> None:
            spin(0.2)

    def spin(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    def compare() -> bool:
        Held()  # ends within its own __del__, where what a signal handler raises goes nowhere
        spin(60)
        return True

    assert expressions.within(0.05, compare) is None


def test_code_in_an_answer_is_not_run(tmp_path: Any) -> None:
    path = tmp_path / "x"
    for answer in (
        f'__import__("os").system("touch {path}")',
        f'\\boxed{{__import__("os").system("touch {path}")}}',
        f"$exec(\"open({str(path)!r}, 'w')\")$",
    ):
        assert mathematics.grade(answer, "5", {}).score == 0.0
    assert not path.exists()


def test_the_same_heavy_formula_is_right() -> None:
    assert mathematics.grade(r"\boxed{9^{9^{9^9}}}", "9^{9^{9^9}}", {}).correct is True


def test_what_the_library_takes_for_equal_is_checked_with_numbers() -> None:
    for a, b in (("1/2004!", "1/2006!"), ("10^{-20}", "10^{-21}"), ("e^{-50}", "e^{-60}")):
        assert expressions.same(a, a) is True
        assert expressions.same(a, b) is False


def test_a_label_that_is_empty_leaves_the_answer_ungraded() -> None:
    assert mathematics.grade("5", "", {}) == Grade(None, reason="the label is empty")


def test_a_list_of_labels_holds_several_right_answers() -> None:
    assert mathematics.grade(r"\boxed{\frac12}", ["1", "0.5"], {}).correct is True
