"""Reads requests, one JSON object a line: {secret, headers, body} with the body in base64. Writes one line for each: what the official
verifier for Python says."""

import base64
import json
import sys

from standardwebhooks import Webhook

for line in sys.stdin:
    request = json.loads(line)
    try:
        Webhook(request["secret"]).verify(base64.b64decode(request["body"]), request["headers"])
        print("verified")
    except Exception as error:
        print("refused:", repr(error).splitlines()[0])
