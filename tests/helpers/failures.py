"""Names each failure when it happens: a run of all tests takes long, and its summary comes last."""

import pytest


class Failures:
    """A plugin of the process that prints; with xdist that is not one that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        word = "FAILED" if report.when == "call" else "ERROR"
        terminal = self._config.get_terminal_writer()
        if terminal.width_of_current_line:
            terminal.line()
        terminal.line(f"{word} {report.nodeid}: {reason_of(report)}", red=True)
        terminal.flush()


def reason_of(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    return text.strip().partition("\n")[0]
