#include "comm/internal.h"
#include "fsdp/clock.h"
#include "fsdp/memory.h"

#include <string.h>

size_t fsdp_comm_piece_bytes = (size_t)1 << 30;
int fsdp_comm_tag_limit;

/* ---- requests ----------------------------------------------------------- */

/* Moves the first `used` elements of a list into a longer one. */
static void *
move_to_longer(void *old, size_t used, size_t capacity, size_t element)
{
    void *list = fsdp_alloc(FSDP_MEM_OTHER, capacity * element);
    if (used > 0)
        memcpy(list, old, used * element);
    fsdp_free(old);
    return list;
}

static void
grow(fsdp_requests_t *list)
{
    size_t used = (size_t)list->count;
    size_t capacity = list->capacity == 0 ? 16 : 2 * (size_t)list->capacity;
    list->handles =
        move_to_longer(list->handles, used, capacity, sizeof *list->handles);
    list->statuses =
        move_to_longer(list->statuses, used, capacity, sizeof *list->statuses);
    list->expected =
        move_to_longer(list->expected, used, capacity, sizeof *list->expected);
    list->capacity = (int)capacity;
}

static MPI_Request *
add_request(fsdp_requests_t *list, int expected)
{
    if (list->count == list->capacity)
        grow(list);
    list->expected[list->count] = expected;
    return &list->handles[list->count++];
}

MPI_Request *
fsdp_work_request(fsdp_work_t *work)
{
    return add_request(&work->requests, -1);
}

/* ---- messages ----------------------------------------------------------- */

/* Tags keep the works of one communicator apart; within a work MPI's order of
 * messages does, as each pair of ranks sends and receives in one order.  Tags
 * may wrap, since that many works are not in flight at once. */
static int
tag_of(const fsdp_work_t *work)
{
    return (int)(work->call.sequence % ((uint64_t)fsdp_comm_tag_limit + 1));
}

static size_t
piece_at(size_t begin, size_t bytes)
{
    size_t left = bytes - begin;
    return left < fsdp_comm_piece_bytes ? left : fsdp_comm_piece_bytes;
}

static void
send_piece(fsdp_work_t *work, const void *data, int bytes, int peer)
{
    MPI_Request *request = add_request(&work->requests, -1);
    fsdp_comm_check_mpi(MPI_Isend(data, bytes, MPI_BYTE, peer, tag_of(work),
                                  work->comm->data, request),
                        "sending");
}

static void
receive_piece(fsdp_work_t *work, void *data, int bytes, int peer)
{
    MPI_Request *request = add_request(&work->requests, bytes);
    fsdp_comm_check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, peer, tag_of(work),
                                  work->comm->data, request),
                        "receiving");
}

void
fsdp_work_send(fsdp_work_t *work, const void *data, size_t bytes, int peer)
{
    for (size_t at = 0; at < bytes; at += piece_at(at, bytes))
        send_piece(work, (const char *)data + at, (int)piece_at(at, bytes),
                   peer);
    fsdp_work_count_bytes(work, bytes);
}

void
fsdp_work_receive(fsdp_work_t *work, void *data, size_t bytes, int peer)
{
    for (size_t at = 0; at < bytes; at += piece_at(at, bytes))
        receive_piece(work, (char *)data + at, (int)piece_at(at, bytes), peer);
}

void
fsdp_work_send_empty(fsdp_work_t *work, int peer)
{
    send_piece(work, NULL, 0, peer);
}

void
fsdp_work_receive_empty(fsdp_work_t *work, int peer)
{
    receive_piece(work, NULL, 0, peer);
}

void
fsdp_work_count_bytes(fsdp_work_t *work, size_t bytes)
{
    if (work->counted)
        work->comm->counters[work->call.kind].bytes_sent += bytes;
}

/* ---- the life of a work ------------------------------------------------- */

static long alive;

long
fsdp_work_alive(void)
{
    return alive;
}

fsdp_work_t *
fsdp_work_create_bare(fsdp_comm_t *comm, const fsdp_ledger_entry_t *call)
{
    fsdp_work_t *work = fsdp_calloc(FSDP_MEM_OTHER, sizeof *work);
    work->comm = comm;
    work->call = *call;
    work->started = fsdp_clock_seconds();
    comm->in_flight++;
    alive++;
    return work;
}

static void
check_call(const fsdp_comm_t *comm, const fsdp_call_t *call)
{
    size_t element = fsdp_dtype_size(call->dtype);
    FSDP_CHECK(comm != NULL, "no communicator: call fsdp_init() first");
    FSDP_CHECK(call->kind == FSDP_BARRIER || element > 0, "%s without a dtype",
               fsdp_collective_name(call->kind));
    bool rooted = call->kind == FSDP_BROADCAST || call->kind == FSDP_GATHER;
    FSDP_CHECK(call->root < comm->size && rooted == (call->root >= 0),
               "%s with root %d of %d ranks", fsdp_collective_name(call->kind),
               call->root, comm->size);
    FSDP_CHECK(
        element == 0 || call->count <= SIZE_MAX / element / (size_t)comm->size,
        "%s of %zu elements", fsdp_collective_name(call->kind), call->count);
}

fsdp_work_t *
fsdp_work_create_uncounted(fsdp_comm_t *comm, const fsdp_call_t *call)
{
    check_call(comm, call);
    double started = fsdp_clock_seconds();
    const fsdp_ledger_entry_t *entry = fsdp_ledger_add(comm, call);
    fsdp_watchdog_note_call(entry);
    if (fsdp_ledger_get_mode() == FSDP_LEDGER_CHECK)
        fsdp_ledger_check(comm, entry);

    fsdp_work_t *work = fsdp_work_create_bare(comm, entry);
    work->started = started;
    return work;
}

fsdp_work_t *
fsdp_work_create(fsdp_comm_t *comm, const fsdp_call_t *call)
{
    fsdp_work_t *work = fsdp_work_create_uncounted(comm, call);
    work->counted = true;
    comm->counters[call->kind].calls++;
    return work;
}

static void
count_seconds(fsdp_work_t *work, double since)
{
    if (work->counted)
        work->comm->counters[work->call.kind].seconds +=
            fsdp_clock_seconds() - since;
}

fsdp_work_t *
fsdp_work_start(fsdp_work_t *work, bool (*advance)(fsdp_work_t *work))
{
    work->advance = advance;
    fsdp_progress_add(work);
    count_seconds(work, work->started);
    return work;
}

void
fsdp_work_wait(fsdp_work_t **slot)
{
    fsdp_work_t *work = *slot;
    if (work == NULL)
        return;
    double since = fsdp_clock_seconds();
    fsdp_progress_until_done(work);
    count_seconds(work, since);
    work->comm->in_flight--;
    alive--;
    fsdp_free(work->requests.handles);
    fsdp_free(work->requests.statuses);
    fsdp_free(work->requests.expected);
    fsdp_free(work);
    *slot = NULL;
}

bool
fsdp_work_test(fsdp_work_t *work)
{
    double since = fsdp_clock_seconds();
    if (!work->done)
        fsdp_progress_poll();
    count_seconds(work, since);
    return work->done;
}
