/* A rank that is killed shows.
 *
 * When a rank dies its connection to the launcher closes, upon which MPICH's
 * launcher kills the other ranks and notes that they are well.  Up to version
 * 4.2.1 (its issue 7057) it does so again for each connection that closes in
 * consequence; if it has not asked by then how the first rank ended, that one
 * was well too, and the run ends with status 0 and without a word.
 *
 * So the ranks of a node stand in a ring, and each keeps open its predecessor's
 * connections to the launcher, which does not hear of a death by them.  A
 * thread sleeps until the predecessor says goodbye or is gone; if that, it
 * tells and ends the run.  It does so whatever its own rank is doing:
 * computing, waiting, or lost in a call of MPI that will never return.  (It is
 * not MPI's own thread, and yet MPICH's MPI_Abort() serves it.) */
#include "comm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 3 }; /* stdout, stderr, and that of the process manager */

typedef struct address {
    struct sockaddr_un name;
    socklen_t length; /* 0: there is none */
    int rank;         /* in the world     */
} address_t;

static struct {
    int next, previous; /* connections to these ranks                       */
    int line[LINES];    /* the previous rank's                              */
    int previous_rank;  /* in the world                                     */
    pthread_t watcher;
    bool watching;
    atomic_bool leaving;
} ring = {.next = -1, .previous = -1, .line = {-1, -1, -1}};

static void
close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Children of a rank that start other programs do not hold its end back. */
static int
private_to_process(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* ---- the connections ---------------------------------------------------- */

/* The name is Linux's choice, and in no folder. */
static int
listen_somewhere(address_t *own)
{
    int fd = private_to_process(socket(AF_UNIX, SOCK_STREAM, 0));
    socklen_t length = sizeof own->name;
    memset(own, 0, sizeof *own);
    MPI_Comm_rank(MPI_COMM_WORLD, &own->rank);
    own->name.sun_family = AF_UNIX;
    if (fd >= 0 &&
        bind(fd, (struct sockaddr *)&own->name, sizeof(sa_family_t)) == 0 &&
        listen(fd, 1) == 0 &&
        getsockname(fd, (struct sockaddr *)&own->name, &length) == 0)
        own->length = length;
    return fd;
}

static bool
connect_to(const address_t *next)
{
    ring.next = private_to_process(socket(AF_UNIX, SOCK_STREAM, 0));
    return ring.next >= 0 && next->length > 0 &&
           connect(ring.next, (const struct sockaddr *)&next->name,
                   next->length) == 0;
}

/* One byte, with the files of this process that `with` holds, or room for some
 * that come. */
typedef struct parcel {
    char byte;
    struct iovec part;
    union {
        char bytes[CMSG_SPACE(LINES * sizeof(int))];
        struct cmsghdr aligned;
    } with;
    struct msghdr message;
} parcel_t;

static void
make_parcel(parcel_t *parcel)
{
    memset(parcel, 0, sizeof *parcel);
    parcel->part = (struct iovec){&parcel->byte, 1};
    parcel->message.msg_iov = &parcel->part;
    parcel->message.msg_iovlen = 1;
    parcel->message.msg_control = parcel->with.bytes;
    parcel->message.msg_controllen = sizeof parcel->with.bytes;
}

/* Hydra and srun tell a process the number of that file. */
static int
process_manager_line(void)
{
    const char *number = getenv("PMI_FD");
    int fd = number == NULL ? -1 : atoi(number);
    return fd > STDERR_FILENO && fcntl(fd, F_GETFD) != -1 ? fd : -1;
}

static bool
hand_over_lines(void)
{
    int line[LINES] = {STDOUT_FILENO, STDERR_FILENO, process_manager_line()};
    parcel_t parcel;
    if (line[LINES - 1] < 0)
        return false;
    make_parcel(&parcel);
    struct cmsghdr *head = CMSG_FIRSTHDR(&parcel.message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof line);
    memcpy(CMSG_DATA(head), line, sizeof line);
    return sendmsg(ring.next, &parcel.message, MSG_NOSIGNAL) == 1;
}

static void
take_lines(void)
{
    parcel_t parcel;
    make_parcel(&parcel);
    if (recvmsg(ring.previous, &parcel.message, 0) != 1)
        return;
    struct cmsghdr *head = CMSG_FIRSTHDR(&parcel.message);
    if (head == NULL || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof ring.line))
        return;
    memcpy(ring.line, CMSG_DATA(head), sizeof ring.line);
    for (int i = 0; i < LINES; i++)
        private_to_process(ring.line[i]);
}

static void
exchange(const address_t *own, int to, address_t *other, int from,
         MPI_Comm node)
{
    fsdp_comm_check_mpi(MPI_Sendrecv(own, sizeof *own, MPI_BYTE, to, 0, other,
                                     sizeof *other, MPI_BYTE, from, 0, node,
                                     MPI_STATUS_IGNORE),
                        "exchanging addresses on this node");
}

/* On all ranks of the node, or on none. */
static bool
close_ring(MPI_Comm node, int rank, int size)
{
    address_t own, next, previous;
    int door = listen_somewhere(&own);
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    exchange(&own, before, &next, after, node);
    exchange(&own, after, &previous, before, node);
    ring.previous_rank = previous.rank;
    int good = own.length > 0 && connect_to(&next) && hand_over_lines();
    fsdp_comm_check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, node),
        "agreeing on the ring");
    if (good)
        ring.previous = private_to_process(accept(door, NULL, NULL));
    close_one(&door);
    return ring.previous >= 0;
}

/* ---- the watch ---------------------------------------------------------- */

/* Reads a goodbye, or finds that there will be none. */
static void *
watch(void *unused)
{
    /* Who kills all ranks, one after the other, kills this one meanwhile. */
    struct timespec moment = {0, 300000000};
    char goodbye;
    ssize_t got;
    (void)unused;
    do
        got = recv(ring.previous, &goodbye, 1, 0);
    while (got < 0 && errno == EINTR);
    if (got == 1 || atomic_load(&ring.leaving))
        return NULL;
    nanosleep(&moment, NULL);
    fsdp_die(FSDP_EXIT_FAULT,
             "rank %d is gone: killed, for want of memory perhaps, or it ended "
             "without fsdp_finalize()",
             ring.previous_rank);
}

/* Signals are for the thread that the program knows. */
static bool
start_watcher(void)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&ring.watcher, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0;
}

/* The previous rank's end is the launcher's affair again. */
static void
let_go(void)
{
    close_one(&ring.previous);
    for (int i = 0; i < LINES; i++)
        close_one(&ring.line[i]);
}

void
fsdp_lifeline_create(MPI_Comm node)
{
    int rank, size;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    atomic_store(&ring.leaving, false);
    if (size == 1 || !close_ring(node, rank, size))
        return;
    take_lines();
    ring.watching = start_watcher();
    if (!ring.watching)
        let_go();
}

void
fsdp_lifeline_destroy(void)
{
    atomic_store(&ring.leaving, true);
    if (ring.next >= 0)
        send(ring.next, "", 1, MSG_NOSIGNAL);
    if (ring.watching) {
        shutdown(ring.previous, SHUT_RD);
        pthread_join(ring.watcher, NULL);
    }
    ring.watching = false;
    close_one(&ring.next);
    let_go();
}
