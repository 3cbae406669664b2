#!/bin/sh
# Saved on 3 ranks, loaded on 1, 2, 4, 5, 8 and back on 3, with every strategy:
# what is loaded is what was saved, and the 5 steps after it differ from unsharded
# training that goes on from the same checkpoint in no value.
#
#     make check-resume                 all of it
#     FROM=3 TO='2 4' sh tests/cli/resume-matrix.sh fsdp2 tp
. "${srcdir-.}/tests/cli/run.sh"
: "${FROM=3}" "${TO=1 2 4 5 8}"

# 120 micro-batches can be dealt to all of these; 60 channels and experts be cut.
# tp shares batches out, so fewer ranks have their own.
mlp="--model mlp --data $digits --hidden 60,60,60 --batch-size 120
     --micro-batch-size 1 --lr 0.01"
gpt2="--model gpt2 --data $stories --layers 1 --heads 2 --width 8 --context 4
      --eval-batches 1 --experts 60 --batch-size 120 --micro-batch-size 1"
mkdir "$tmp/files"

# settings STRATEGY RANKS: the arguments
settings() {
    n=$2 r=1 p=1
    case $n in 2 | 4 | 8) r=2 p=2 ;; 3 | 5) r=$n p=$n ;; esac
    [ $n != 8 ] || p=4
    mesh=${r}x$((n / r)) last='--gradient-sync last'
    case $1 in
    fsdp2) echo $mlp ;;
    true) echo $mlp $last --reshard-after-forward true ;;
    false) echo $mlp $last --reshard-after-forward false ;;
    groups) echo $mlp --reshard-after-forward $((n > 3 ? n / r : 1)) ;;
    sgd) echo $mlp $last --optimizer sgd --momentum 0.9 --lr 0.05 ;;
    half) echo $mlp $last --param-dtype bfloat16 --reduce-dtype float32 ;;
    scaler) echo $mlp --param-dtype float16 --grad-scaler --loss-scale 1e6 \
                --loss-scale-interval 2 ;;
    offload) echo $mlp $last --offload "$tmp/files" ;;
    hsdp) echo $mlp $last --mesh $mesh ;;
    last) echo $mlp --mesh $mesh --gradient-sync last-all-reduce ;;
    full) echo $mlp --api fsdp1 --sharding-strategy FULL_SHARD ;;
    grad) echo $mlp $last --api fsdp1 --sharding-strategy SHARD_GRAD_OP ;;
    none) echo $mlp --api fsdp1 --sharding-strategy NO_SHARD ;;
    hybrid) echo $mlp --api fsdp1 --sharding-strategy HYBRID_SHARD \
                --mesh $mesh ;;
    hybrid2) echo $mlp $last --api fsdp1 --sharding-strategy _HYBRID_SHARD_ZERO2 \
                 --mesh $mesh ;;
    ddp | zero1 | zero2 | zero3) echo $mlp --strategy $1 ;;
    tp) echo $mlp $last --tp $p ;;
    experts) echo $gpt2 --expert-parallel $p ;;
    replicas) echo $gpt2 $last --expert-parallel 1 --mesh $mesh ;;
    esac
}

# Two of one family have the same parameters and optimizer.
next() {
    case $1 in
    fsdp2) echo tp ;; tp) echo grad ;; grad) echo hsdp ;; hsdp) echo zero1 ;;
    zero1) echo true ;; true) echo hybrid ;; hybrid) echo false ;;
    false) echo zero2 ;; zero2) echo none ;; none) echo groups ;;
    groups) echo ddp ;; ddp) echo full ;; full) echo last ;;
    last) echo hybrid2 ;; hybrid2) echo zero3 ;; zero3) echo fsdp2 ;;
    experts) echo replicas ;; replicas) echo experts ;;
    *) echo $1 ;;
    esac
}

compared=0
# train RANKS STRATEGY STEPS FOLDER [ARGUMENT]: verified
train() {
    n=$1 strategy=$2 steps=$3 folder=$4
    shift 4
    fsdp "$n" train $(settings $strategy $n) --steps $steps --verify step \
        --checkpoint-dir "$folder" --log-file "$tmp/log" "$@"
    ends_with 0
    says '^verified: 0 of '
    compared=$((compared + $(member verified)))
}

count=0
for strategy in ${*:-fsdp2 true false groups sgd half scaler offload hsdp last \
    full grad none hybrid hybrid2 ddp zero1 zero2 zero3 tp experts replicas}; do
    rm -rf "$tmp/saved"
    mkdir "$tmp/saved"
    train $FROM $strategy 2 "$tmp/saved"
    for w in $TO; do
        rm -rf "$tmp/copy"
        cp -r "$tmp/saved" "$tmp/copy"
        train $w $strategy 7 "$tmp/copy" --resume
        says '^fsdp: going on after step 2, from .*'" by $FROM rank"
        train $FROM $(next $strategy) 12 "$tmp/copy" --resume
        says '^fsdp: going on after step 7, from .*'" by $w rank"
        count=$((count + 2))
    done
    [ $bad = 0 ] || exit 1
done
echo "$count runs went on from a checkpoint; 0 of $compared values differ"
exit $bad
