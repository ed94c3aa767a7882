"""Certificates for a test: a private certificate authority, and a certificate for this machine that it has signed."""

import pathlib
import ssl
import subprocess


class Certificates:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.authority, self.chain, self.key = (str(folder / name) for name in ("ca.pem", "chain.pem", "key.pem"))
        authority_key, request, names = (str(folder / name) for name in ("ca.key", "request.pem", "names"))
        pathlib.Path(names).write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *new_key, "-keyout", authority_key, "-out", self.authority, "-subj", "/CN=test", "-days", "2")
        openssl("req", *new_key, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost")
        signed = ("-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", request, "-out", self.chain, "-extfile", names, *signed)

    def server(self, protocols=("http/1.1",)):
        """The TLS context of a server that presents the certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        context.set_alpn_protocols(list(protocols))
        return context

    def client(self, protocols=None):
        """The TLS context of a client that trusts the authority."""
        context = ssl.create_default_context(cafile=self.authority)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
