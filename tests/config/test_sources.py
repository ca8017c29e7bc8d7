"""Where options come from: arguments and environment. Properties files are judged by Java in test_judged.py."""

import pytest

from ottla.config import ConfigError, parse_environment, parse_properties, parse_settings


def test_arguments() -> None:
    assert parse_settings(["a.b=c=d", " x = y "]) == {"a.b": "c=d", "x": " y "}
    with pytest.raises(ConfigError, match="name=value"):
        parse_settings(["a.b"])
    with pytest.raises(ConfigError, match="name=value"):
        parse_settings(["=x"])


def test_the_environment() -> None:
    variables = {"OTTLA_LOG_SEGMENT_BYTES": "5", "OTTLA_NUM_IO_THREADS": "2", "HOME": "x", "OTTLA_CACHE": "y"}
    assert parse_environment(variables) == {"log.segment.bytes": "5", "num.io.threads": "2"}
    assert parse_environment({"HOME": "x"}) == {}


def test_a_slip_in_the_environment_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="OTTLA_LOG_SEGMENT_BYTE in the environment: did you mean OTTLA_LOG_SEGMENT_B"
    ):
        parse_environment({"OTTLA_LOG_SEGMENT_BYTE": "5"})


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", r"a=\u"])
def test_malformed_escapes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Malformed"):
        parse_properties(text)
