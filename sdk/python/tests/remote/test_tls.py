"""TLS with a private certificate authority."""

import pathlib
import shutil
import sys
import time

import pytest
from api_server import ROOT, ApiServer

import onceward

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    sys.path.insert(0, str(ROOT / "tests" / "http"))
    try:
        import certificates as made
    finally:
        sys.path.pop(0)
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "other").mkdir()
    return made.Certificates(folder), made.Certificates(folder / "other")


@pytest.fixture(scope="module")
def secure(certificates, tmp_path_factory):
    own, _ = certificates
    server = ApiServer(tmp_path_factory.mktemp("secure"), api=f'tls = {{ chain = "{own.chain}", key = "{own.key}" }}')
    yield server
    server.stop()


def test_a_private_authority_is_trusted_where_it_is_named(secure, certificates, key):
    assert secure.url.startswith("https://")
    with onceward.Ledger(secure.url, ca=pathlib.Path(certificates[0].authority)) as ledger:
        effects = []
        for _ in range(2):
            assert ledger.call("charge", key=key).run(lambda: effects.append(1) or "made") == "made"
        assert effects == [1]


def test_a_variable_can_name_the_authority_too(secure, certificates, key, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", certificates[0].authority)
    with onceward.Ledger(secure.url) as ledger:
        assert ledger.call("charge", key=key).run(lambda: "made") == "made"


def test_an_unknown_authority_is_not_trusted(secure, certificates, key):
    for given in ({}, {"ca": certificates[1].authority}):
        effects, started = [], time.monotonic()
        with pytest.raises((onceward.StoreUnavailable, onceward.InvalidCall), match="certificate"):
            onceward.Ledger(secure.url, **given).call("charge", key=key).run(effects.append, 1)
        # Asking again would not change the certificate.
        assert effects == [] and time.monotonic() - started < 1.2


def test_a_server_with_tls_is_not_used_without(secure, key):
    effects = []
    with pytest.raises(onceward.StoreUnavailable):
        onceward.Ledger(secure.url.replace("https", "http")).call("charge", key=key).run(effects.append, 1)
    assert effects == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no 127.0.0.2")
def test_another_name_than_that_of_the_certificate_is_refused(tmp_path, certificates, key):
    own, effects = certificates[0], []
    server = ApiServer(tmp_path, api=f'tls = {{ chain = "{own.chain}", key = "{own.key}" }}', host="127.0.0.2")
    try:
        with pytest.raises(onceward.StoreUnavailable, match="certificate"):
            onceward.Ledger(server.url, ca=own.authority).call("charge", key=key).run(effects.append, 1)
    finally:
        server.stop()
    assert effects == []


@pytest.mark.parametrize("content", [None, "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_certificates_is_refused(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(onceward.InvalidCall, match="CA file"):
        onceward.Ledger("https://127.0.0.1:1", ca=path)


def test_a_certificate_file_is_only_for_tls(certificates):
    with pytest.raises(onceward.InvalidCall, match="https"):
        onceward.Ledger("http://127.0.0.1:1", ca=certificates[0].authority)
