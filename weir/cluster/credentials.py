"""What NATS and the S3 server of a cluster on this machine ask for: made once, then kept."""

import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.devkeys import write_private
from wire.settings import SettingsError

FILE = "cluster-secrets.json"


class Credentials(Struct, frozen=True):
    nats_user: str
    nats_password: str
    s3_access_key_id: str
    s3_secret_access_key: str


def ensure_credentials(folder: Path) -> Credentials:
    """Those in the folder, for this user alone; raises SettingsError."""
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(str(path), f"cannot be read ({error})") from error
    made = Credentials(
        nats_user="weir",
        nats_password=secrets.token_hex(20),
        s3_access_key_id=secrets.token_hex(10).upper(),
        s3_secret_access_key=secrets.token_hex(20),
    )
    write_private(path, msgspec.json.encode(made).decode())
    return made
