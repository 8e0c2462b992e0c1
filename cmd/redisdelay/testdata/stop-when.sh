# stop-when.sh CONDITION COMMAND...: runs a command that runs until a signal, and sends it SIGTERM a second after it has said
# so and the condition is true. However slow the machine is, the command has begun by then.
condition=$1
shift
: >"$FILES/said" # a run before has left its own
"$@" 2>>"$FILES/said" &
until grep -q "until a signal" "$FILES/said" || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
until eval "$condition" >"$FILES/condition" 2>&1 || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
sleep 1
kill $! 2>/dev/null
wait $!
code=$?
cat "$FILES/said" >&2
exit $code
