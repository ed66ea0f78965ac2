# two_processes.sh PROGRAM: runs it as rank 0 and rank 1 of two, which meet at a port of this machine.
export WORLD_SIZE=2 NCCL_COMM_ID=127.0.0.1:$((20000 + $$ % 10000))
RANK=1 "$1" &
other=$!
RANK=0 "$1" || { kill "$other"; exit 1; }
wait "$other"
