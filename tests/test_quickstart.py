"""The quickstart from a wheel, in an environment away from the checkout: it learns there too."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from pipelines import stages
from pipelines.runs import read_tracking

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.train, pytest.mark.slow]


@pytest.fixture
def installed(tmp_path) -> Path:
    """`advisor` installed from a wheel; what it depends on is borrowed from this environment."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(tmp_path), str(ROOT)],
        check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("advisor-*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = next((environment / "lib").glob("python*")) / "site-packages"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--prefix",
            str(environment),
            str(wheel),
        ],
        check=True,
    )
    # a path in a .pth file brings the packages, not their own .pth files: an editable install stays out
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def test_the_quickstart_from_a_wheel_learns_to_work_its_sums(tmp_path, installed):
    away = tmp_path / "away"
    away.mkdir()
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")}

    def advisor(*arguments: str) -> subprocess.CompletedProcess:
        command = [str(installed / "python"), "-m", "advisor", *arguments]
        return subprocess.run(
            command, cwd=away, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    where = subprocess.run(
        [str(installed / "python"), "-c", "import advisor; print(advisor.__file__)"],
        cwd=away, env=clean, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(tmp_path) in where.stdout, "the wheel's, not the checkout's"

    done = advisor("quickstart")
    assert done.returncode == 0, done.stderr
    run = away / "quickstart"
    rates = [stages.read_result(run / s).pass_rates for s in ("00-probe", "01-sft", "02-dapo")]
    assert rates[0].pass_at_1.value < 0.05
    assert 0.4 < rates[1].pass_at_1.value < 0.65
    assert rates[2].pass_at_1.value >= 0.95
    assert rates[2].mean_tokens > 1.5 * rates[1].mean_tokens, "answers turn from guesses into worked sums"
    assert f"{rates[2].pass_at_1.value:.3f}" in done.stderr
    assert "quickstart/report.html" in done.stderr
    assert "advisor ui quickstart" in done.stderr
    assert read_tracking(run).complete
    report = (run / "report.html").read_text()
    assert "Learning curves" in report
    assert "http-equiv" not in report
    assert 'src="http' not in report

    again = advisor("quickstart")
    assert again.returncode == 0
    assert "is finished" in again.stderr
