#!/usr/bin/env bash
# Runs Envoy with the arguments given, and lets its clients leave before it ends: by itself it would
# cut them off at once. `run.sh health` says whether it is ready; the image has no curl.
set -u
leave_secs=${ENVOY_LEAVE_SECS:-20}

ask() { # METHOD PATH
    exec 3<>"/dev/tcp/127.0.0.1/${ENVOY_ADMIN_PORT:-9901}" &&
        printf '%s %s HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n' "$@" >&3 &&
        cat <&3
}

leave() {
    trap '' TERM INT
    ask POST '/drain_listeners?graceful' >/dev/null
    for ((second = 0; second < leave_secs; second++)); do
        # Connections of the admin port, such as this one, do not count.
        ask GET '/stats?filter=downstream_cx_active' | grep -Eq '^http\.(tls|plain)\..*: [1-9]' || break
        sleep 1
    done
    kill -TERM "$envoy"
}

if [ "${1-}" = health ]; then
    ask GET /ready | grep -q LIVE
    exit
fi

envoy "$@" &
envoy=$!
trap leave TERM INT
wait "$envoy"
code=$?
if kill -0 "$envoy" 2>/dev/null; then # it was a signal that ended the wait
    wait "$envoy"
    code=$?
fi
exit "$code"
