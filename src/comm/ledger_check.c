/* The comparison of the ledgers, before a call moves any data: a call that
 * does not fit would hang, or worse, give wrong numbers. */
#include "comm/internal.h"
#include "fsdp/memory.h"

#include <string.h>

typedef struct line {
    fsdp_ledger_entry_t entry;
    int world_rank;
} line_t;

/* ---- the exchange ------------------------------------------------------- */

static bool
exchange_advance(fsdp_work_t *work)
{
    if (work->stage > 0)
        return true;
    fsdp_comm_check_mpi(MPI_Iallgather(work->in, (int)sizeof(line_t), MPI_BYTE,
                                       work->out, (int)sizeof(line_t), MPI_BYTE,
                                       work->comm->control,
                                       fsdp_work_request(work)),
                        "the exchange of the ledgers");
    return false;
}

static void
exchange(fsdp_comm_t *comm, const line_t *mine, line_t *all)
{
    fsdp_work_t *work = fsdp_work_create_bare(comm, &mine->entry);
    work->in = mine;
    work->out = all;
    fsdp_work_start(work, exchange_advance);
    fsdp_work_wait(&work);
}

/* ---- the comparison ----------------------------------------------------- */

/** field, what to do when it differs */
#define FIELDS(X)                                                              \
    X(sequence, "a rank made more calls than another before this one")         \
    X(kind, "the ranks take different ways through the program: look for a "   \
            "branch on the rank or on its data")                               \
    X(dtype, "the ranks run with different dtypes: give all the same options") \
    X(op, "the ranks ask for different reductions")                            \
    X(order, "give all ranks the same reduction order")                        \
    X(root, "all ranks must name the same root")

static const char count_remedy[] =
    "the ranks have different sizes: build the same model, batch and shards on "
    "each";
static const char unit_remedy[] =
    "the units come in different orders: all ranks must use modules in the "
    "same order";

/* In an all-to-all each rank has its own. */
static bool
same_count(const fsdp_ledger_entry_t *a, const fsdp_ledger_entry_t *b)
{
    return a->count == b->count ||
           (a->kind == FSDP_ALL_TO_ALL && b->kind == FSDP_ALL_TO_ALL);
}

static bool
same(const fsdp_ledger_entry_t *a, const fsdp_ledger_entry_t *b)
{
#define SAME_FIELD(name, remedy) a->name == b->name &&
    return FIELDS(SAME_FIELD) same_count(a, b) && strcmp(a->unit, b->unit) == 0;
#undef SAME_FIELD
}

/* The line that most ranks have, the lowest of equals. */
static int
most_common(const line_t *all, int size)
{
    int best = 0, most = 0;
    for (int i = 0; i < size; i++) {
        int votes = 0;
        for (int j = 0; j < size; j++)
            votes += same(&all[i].entry, &all[j].entry);
        if (votes > most) {
            most = votes;
            best = i;
        }
    }
    return best;
}

/* The names of the fields that differ; the first one's remedy is returned. */
static const char *
differing(const fsdp_ledger_entry_t *a, const fsdp_ledger_entry_t *b,
          char *names, size_t size)
{
    const char *first = NULL;
    names[0] = '\0';
#define ADD(differs, name, remedy)                                             \
    if (differs) {                                                             \
        size_t used = strlen(names);                                           \
        snprintf(names + used, size - used, "%s%s", used ? ", " : "", name);   \
        first = first ? first : remedy;                                        \
    }
#define ADD_FIELD(name, remedy) ADD(a->name != b->name, #name, remedy)
    FIELDS(ADD_FIELD)
    ADD(!same_count(a, b), "count", count_remedy)
    ADD(strcmp(a->unit, b->unit) != 0, "unit", unit_remedy)
#undef ADD_FIELD
#undef ADD
    return first;
}

/* "rank 1" or "ranks 0, 2, 3": those that call what `like` calls. */
static void
list_ranks(const line_t *all, int size, int like, char *text, size_t room)
{
    int found = 0;
    size_t used = 0;
    for (int i = 0; i < size; i++)
        found += same(&all[i].entry, &all[like].entry);
    used += (size_t)snprintf(text, room, found == 1 ? "rank" : "ranks");
    const char *comma = " ";
    int listed = 0;
    for (int i = 0; i < size && listed < 8; i++) {
        if (!same(&all[i].entry, &all[like].entry))
            continue;
        used += (size_t)snprintf(text + used, room - used, "%s%d", comma,
                                 all[i].world_rank);
        comma = ", ";
        listed++;
    }
    if (found > listed)
        snprintf(text + used, room - used, " and %d more", found - listed);
}

static _Noreturn void
report(const line_t *all, int size, int usual, int odd)
{
    const fsdp_ledger_entry_t *a = &all[usual].entry, *b = &all[odd].entry;
    char line_a[256], line_b[256], ranks_a[128], ranks_b[128], names[128];
    fsdp_ledger_format(a, line_a, sizeof line_a);
    fsdp_ledger_format(b, line_b, sizeof line_b);
    list_ranks(all, size, usual, ranks_a, sizeof ranks_a);
    list_ranks(all, size, odd, ranks_b, sizeof ranks_b);
    const char *remedy = differing(a, b, names, sizeof names);
    fsdp_die(FSDP_EXIT_FAULT,
             "the ranks are about to call different collectives\n"
             "    %s: %s\n"
             "    %s: %s\n"
             "    differs: %s\n"
             "    likely: %s",
             ranks_a, line_a, ranks_b, line_b, names, remedy);
}

static void
compare(const fsdp_comm_t *comm, const line_t *all)
{
    int size = comm->size, usual = 0, odd = 0;
    while (odd < size && same(&all[0].entry, &all[odd].entry))
        odd++;
    if (odd == size)
        return;
    if (comm->rank != 0)
        fsdp_comm_await_end();
    usual = most_common(all, size);
    for (odd = 0; same(&all[usual].entry, &all[odd].entry);)
        odd++;
    report(all, size, usual, odd);
}

void
fsdp_ledger_check(fsdp_comm_t *comm, const fsdp_ledger_entry_t *entry)
{
    line_t *all =
        fsdp_calloc(FSDP_MEM_OTHER, ((size_t)comm->size + 1) * sizeof *all);
    line_t *mine = &all[comm->size];
    mine->entry = *entry;
    mine->world_rank = fsdp_comm_world_rank(comm, comm->rank);
    exchange(comm, mine, all);
    compare(comm, all);
    fsdp_free(all);
}
