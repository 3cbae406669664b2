#!/bin/sh
# Started by another MPI's launcher, each of N processes sees a world of one:
# they say so once, end with status 2, and do not run N times.  The launchers
# are simulated by the variables that they set.
. "${srcdir-.}/tests/comm/misuse.sh"

# foreign VARIABLE=VALUE...: one of the processes, without any launcher
foreign() {
    scenario=none ranks="1 ($*)"
    output=$(env "$@" timeout 60 tests/comm/misuse none 2>&1)
    status=$?
}

for own in OMPI_COMM_WORLD_SIZE=4:OMPI_COMM_WORLD_RANK \
    MPI_LOCALNRANKS=2:MPI_LOCALRANKID \
    SLURM_STEP_NUM_TASKS=8:SLURM_PROCID; do
    foreign "${own%:*}" "${own#*:}=0"
    ends_with 2
    says_once
    count=${own%:*}
    says "^fsdp: started by .* as one of ${count#*=} processes, but .* mpiexec"
    foreign "${own%:*}" "${own#*:}=1"
    ends_with 2
    [ -z "$output" ] || complain 'more than one process speaks'
    foreign "${count%=*}=1" "${own#*:}=0"
    ends_with 0
done
foreign PMIX_RANK=3
ends_with 2
says_once
foreign PMIX_RANK=0
ends_with 0

# With a launcher of its own the same variables mean nothing.
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0
export OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
misuse none 2 30
ends_with 0
exit $bad
