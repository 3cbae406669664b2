/* Waiting.  MPI's own waits spin, so that a rank that waits keeps the rank it
 * waits for from running when there are more ranks than cores.  Here a rank
 * polls and offers its core to the others, for about as long as a short message
 * takes; then it sleeps between polls, each time for an eighth of the time
 * waited so far.  So sleeping makes a wait longer by an eighth at most, and a
 * long wait costs its core, at some 10 us a poll, about 2 %. */
#include "comm/internal.h"
#include "fsdp/clock.h"
#include "fsdp/memory.h"

#include <sched.h>
#include <time.h>

enum { YIELDS = 200 };
static const double shortest_sleep = 5e-6, longest_sleep = 500e-6;

/* The works in flight, in the order of their start. */
static fsdp_work_t *active;

static _Noreturn void
refuse(const fsdp_work_t *work, int error)
{
    char line[256], text[MPI_MAX_ERROR_STRING] = "a message is too short";
    int length;
    fsdp_ledger_format(&work->call, line, sizeof line);
    if (error != MPI_SUCCESS)
        MPI_Error_string(error, text, &length);
    fsdp_die(FSDP_EXIT_FAULT,
             "%s: %s.  Do all ranks call the same?  Run with the ledger check "
             "on (--ledger check) to see.",
             line, text);
}

/* MPI tells of messages that are too long; those that are too short it takes
 * for good. */
static void
check_messages(const fsdp_work_t *work)
{
    const fsdp_requests_t *list = &work->requests;
    for (int i = 0; i < list->count; i++) {
        int bytes = list->expected[i];
        if (bytes >= 0)
            MPI_Get_count(&list->statuses[i], MPI_BYTE, &bytes);
        if (bytes != list->expected[i])
            refuse(work, MPI_SUCCESS);
    }
}

/* Of several messages at least one failed; others may be done or not. */
static _Noreturn void
refuse_failed(const fsdp_work_t *work, int code)
{
    const fsdp_requests_t *list = &work->requests;
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < list->count; i++) {
        int error = list->statuses[i].MPI_ERROR;
        if (error != MPI_SUCCESS && error != MPI_ERR_PENDING)
            code = error;
    }
    refuse(work, code);
}

/* Have all messages of this stage arrived? */
static bool
messages_done(fsdp_work_t *work)
{
    fsdp_requests_t *list = &work->requests;
    int flag = 1;
    if (list->count == 0)
        return true;
    int code = MPI_Testall(list->count, list->handles, &flag, list->statuses);
    if (code != MPI_SUCCESS)
        refuse_failed(work, code);
    if (!flag)
        return false;
    check_messages(work);
    list->count = 0;
    return true;
}

static void
drive(fsdp_work_t *work)
{
    while (!work->done && messages_done(work)) {
        work->done = work->advance(work);
        work->stage++;
    }
    if (work->done) {
        fsdp_free(work->scratch);
        work->scratch = NULL;
    }
}

void
fsdp_progress_poll(void)
{
    fsdp_work_t **link = &active;
    while (*link != NULL) {
        fsdp_work_t *work = *link;
        drive(work);
        if (work->done)
            *link = work->next;
        else
            link = &work->next;
    }
}

void
fsdp_progress_add(fsdp_work_t *work)
{
    drive(work);
    if (work->done)
        return;
    fsdp_work_t **link = &active;
    while (*link != NULL)
        link = &(*link)->next;
    *link = work;
}

static void
sleep_after(double waited)
{
    double seconds = waited / 8.0;
    if (seconds < shortest_sleep)
        seconds = shortest_sleep;
    if (seconds > longest_sleep)
        seconds = longest_sleep;
    nanosleep(&(struct timespec){0, (long)(seconds * 1e9)}, NULL);
}

void
fsdp_progress_until_done(fsdp_work_t *work)
{
    if (!work->done)
        fsdp_progress_poll();
    if (work->done)
        return;

    double last = fsdp_clock_seconds(), waited = 0.0;
    fsdp_watchdog_note_wait(&work->call);
    for (int i = 0; !work->done; i++) {
        if (i < YIELDS) {
            sched_yield();
        } else {
            double now = fsdp_clock_seconds();
            /* A rank that was itself stopped did not wait. */
            waited += now - last < 1.0 ? now - last : 1.0;
            last = now;
            fsdp_watchdog_check(waited);
            sleep_after(waited);
        }
        fsdp_progress_poll();
    }
    fsdp_watchdog_note_running();
}
