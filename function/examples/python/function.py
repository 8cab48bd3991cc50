#!/usr/bin/env python3
"""A pod of a Skipper pool in Python: what any image has to do itself that is not written in Go.

Only the check of the token's signature needs more than the standard library: a PASETO library, here pyseto
(pip install pyseto). Without it, and without SKIPPER_INSECURE_ACCEPT_ANY_TOKEN=1, every assignment is refused.

From the environment: POD_NAME and POD_UID (downward API), SKIPPER_PUBLIC_KEY_FILE (PEM keys, any of which may have signed), PORT (8080),
STOP_DELAY (3 s), and SKIPPER_STATE_FILE, on an emptyDir: it outlives a restart of the container, and not the pod.
"""

import base64
import hashlib
import json
import os
import signal
import socket
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POD_NAME, POD_UID = os.environ["POD_NAME"], os.environ["POD_UID"]
STATE_FILE = os.environ["SKIPPER_STATE_FILE"]
IDENTITY = {"namespace": "", "deployment": "", "tenant": "", "metadata": "", "oneshot": False}
STOP_DELAY = float(os.environ.get("STOP_DELAY", "3"))  # new requests are taken for so long after SIGTERM, until every proxy has heard

lock = threading.Lock()
held = None  # the assignment, once there is one; it never changes again
running = 0  # requests in progress


def signed_claims(token):
    """The claims of a token that Skipper has signed, or an error."""
    if os.environ.get("SKIPPER_INSECURE_ACCEPT_ANY_TOKEN") == "1":
        # For a developer's machine: who reaches the port becomes the tenant. The last 64 bytes are the signature.
        return json.loads(base64.urlsafe_b64decode(token.removeprefix("v2.public.") + "==")[:-64])
    import pyseto

    with open(os.environ["SKIPPER_PUBLIC_KEY_FILE"], encoding="ascii") as file:
        pems = [pem + "-----END PUBLIC KEY-----\n" for pem in file.read().split("-----END PUBLIC KEY-----")[:-1]]
    keys = [pyseto.Key.new(version=2, purpose="public", key=pem.strip().encode()) for pem in pems]
    return json.loads(pyseto.decode(keys, token).payload)


def check(claims, text):
    """Refuses a token that is old, for another pod, or for another function than that of the header."""
    now, minute = datetime.now(timezone.utc), timedelta(minutes=1)
    start, end = (datetime.fromisoformat(claims[name].replace("Z", "+00:00")) for name in ("nbf", "exp"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode("latin-1")).digest()).rstrip(b"=").decode()
    if not start - minute <= now < end + minute:
        raise ValueError("the token is not valid at this time")
    if (claims["pod"], claims["uid"]) != (POD_NAME, POD_UID):
        raise ValueError("the token is for another pod")
    if claims["fnh"] != digest:
        raise ValueError("the token is for another function")


def assign(token, text):
    """Status and text for an assignment: the same one again is welcome, another one never."""
    global held
    try:
        claims = signed_claims(token)
        check(claims, text)
        function = json.loads(text.encode("latin-1"))
        if function["tenant"] != claims["sub"]:
            raise ValueError("the token is for another tenant")
    except Exception as problem:  # whatever is wrong with a token, it is no assignment
        return 401, f"token refused: {problem!r}"
    mine = {name: function.get(name) or empty for name, empty in IDENTITY.items()}
    with lock:
        if held is None:
            remember(mine)
            held = mine
        return (200, "assigned") if held == mine else (409, "this pod has another assignment")


def remember(mine):
    """Writes the assignment down before it is accepted, all or nothing."""
    with open(STATE_FILE + ".new", "w", encoding="utf-8") as file:
        json.dump({"uid": POD_UID, "assignment": mine}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(STATE_FILE + ".new", STATE_FILE)


def recall():
    """What this pod was before its container was started anew; None at its first start."""
    try:
        with open(STATE_FILE, encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        return None
    return state["assignment"] if state["uid"] == POD_UID else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, text, **headers):
        body = text.encode() + b"\n"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.close_connection = True  # a body may be left unread
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def finish(self):
        """Sees to it that the answer is read: a connection closed over an unread body is reset, and the answer may go with it."""
        super().finish()
        end = time.monotonic() + 1
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(65536):
                    break
        except OSError:
            pass  # the proxy has gone, or has nothing more to say

    def handle_request(self):
        instances = self.headers.get_all("x-skipper-instance", [])
        if self.path == "/__skipper/assign" and self.command == "POST":
            self.answer(*assign(self.headers.get("x-skipper-token", ""), self.headers.get("x-skipper-function", "")))
        elif self.path == "/healthz" and not instances:
            self.answer(200, "ok")
        elif held is None or instances != [POD_UID]:
            # The heart of it: whatever is not for this pod goes back to the proxy, which finds the right one.
            self.answer(421, "misdirected", x_skipper_misdirected="1")
        else:
            self.answer(200, "hello, " + held["tenant"])

    def counted(self):
        global running
        with lock:
            running += 1
        try:
            self.handle_request()
        finally:
            with lock:
                running -= 1

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = counted

    def log_message(self, *_):
        """Requests are the proxy's to log."""


def leave():
    """Ends the process once nothing is in progress any more."""
    with lock:
        if running == 0:
            os._exit(0)
    threading.Timer(0.1, leave).start()


def main():
    global held
    held = recall()
    signal.signal(signal.SIGTERM, lambda *_: threading.Timer(STOP_DELAY, leave).start())
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler)
    print(f"listening on port {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
