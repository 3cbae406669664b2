/* The ledger: what this rank has called, per communicator. */
#include "comm/internal.h"

#include <string.h>

static fsdp_ledger_mode_t mode = FSDP_LEDGER_OFF;

static const char *const kinds[FSDP_COLLECTIVE_COUNT] = {
    [FSDP_ALL_GATHER] = "all_gather", [FSDP_REDUCE_SCATTER] = "reduce_scatter",
    [FSDP_ALL_REDUCE] = "all_reduce", [FSDP_BROADCAST] = "broadcast",
    [FSDP_GATHER] = "gather",         [FSDP_ALL_TO_ALL] = "all_to_all",
    [FSDP_BARRIER] = "barrier",
};
static const char *const ops[] = {
    [FSDP_SUM] = "sum", [FSDP_MAX] = "max", [FSDP_MIN] = "min"};

const char *
fsdp_collective_name(fsdp_collective_t kind)
{
    return kinds[kind];
}

void
fsdp_ledger_set_mode(fsdp_ledger_mode_t new_mode)
{
    mode = new_mode;
}

fsdp_ledger_mode_t
fsdp_ledger_get_mode(void)
{
    return mode;
}

uint64_t
fsdp_ledger_length(const fsdp_comm_t *comm)
{
    return comm->sequence;
}

const fsdp_ledger_entry_t *
fsdp_ledger_latest(const fsdp_comm_t *comm, size_t i)
{
    if (i >= comm->kept)
        return NULL;
    return &comm->ledger[(comm->sequence - i) % LEDGER_KEPT];
}

/* The end of a long name says more than its beginning. */
static void
copy_unit(char *to, size_t size, const char *unit)
{
    size_t length = strlen(unit);
    if (length >= size)
        unit += length - (size - 1);
    strcpy(to, unit);
}

const fsdp_ledger_entry_t *
fsdp_ledger_add(fsdp_comm_t *comm, const fsdp_call_t *call)
{
    comm->sequence++;
    if (mode == FSDP_LEDGER_OFF)
        comm->kept = 1;
    else if (comm->kept < LEDGER_KEPT)
        comm->kept++;

    fsdp_ledger_entry_t *entry = &comm->ledger[comm->sequence % LEDGER_KEPT];
    memset(entry, 0, sizeof *entry);
    entry->sequence = comm->sequence;
    entry->kind = call->kind;
    entry->dtype = call->dtype;
    entry->op = call->op;
    entry->order = call->order;
    entry->root = call->root;
    entry->count = call->count;
    entry->bytes = call->count * fsdp_dtype_size(call->dtype);
    copy_unit(entry->unit, sizeof entry->unit, call->unit ? call->unit : "-");
    memcpy(entry->comm, comm->name, sizeof entry->comm);
    return entry;
}

static void
format_reduction(const fsdp_ledger_entry_t *entry, char *text, size_t size)
{
    text[0] = '\0';
    if (entry->kind == FSDP_REDUCE_SCATTER || entry->kind == FSDP_ALL_REDUCE)
        snprintf(text, size, " %s/%s", ops[entry->op],
                 fsdp_reduce_order_name(entry->order));
    else if (entry->root >= 0)
        snprintf(text, size, " root %d", entry->root);
}

void
fsdp_ledger_format(const fsdp_ledger_entry_t *entry, char *text, size_t size)
{
    char reduction[32];
    if (entry->sequence == 0) {
        snprintf(text, size, "no collective yet");
        return;
    }
    int length = snprintf(
        text, size, "#%llu %s %s %s", (unsigned long long)entry->sequence,
        fsdp_collective_name(entry->kind), entry->comm, entry->unit);
    if (entry->kind == FSDP_BARRIER || (size_t)length >= size)
        return;
    format_reduction(entry, reduction, sizeof reduction);
    snprintf(text + length, size - (size_t)length,
             " %s%s %llu elements %llu bytes", fsdp_dtype_name(entry->dtype),
             reduction, (unsigned long long)entry->count,
             (unsigned long long)entry->bytes);
}
