from pathlib import Path

import pytest

from weir.cluster.credentials import FILE, ensure_credentials
from wire.settings import SettingsError


def test_they_are_made_once_and_for_this_user_alone(tmp_path: Path) -> None:
    made = ensure_credentials(tmp_path / "keys")
    assert ensure_credentials(tmp_path / "keys") == made
    assert (tmp_path / "keys" / FILE).stat().st_mode & 0o777 == 0o600
    other = ensure_credentials(tmp_path / "other")
    assert other.nats_password != made.nats_password
    assert other.s3_secret_access_key != made.s3_secret_access_key


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(SettingsError, match=FILE):
        ensure_credentials(tmp_path)
