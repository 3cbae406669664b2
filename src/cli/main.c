/* fsdp: the program with its commands. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static void
print_help(FILE *out)
{
    fputs(
        "usage: [mpirun -n RANKS] fsdp COMMAND [OPTION]...\n\n"
        "  train      train a model on a file, sharded; --verify proves it\n"
        "             equal to unsharded training, bit for bit\n"
        "  generate   write text with a trained model\n"
        "  plan       count a step before it runs: memory and traffic\n"
        "  inspect    draw which rank holds what, or list a file's tensors\n"
        "  compare    judge a recorded run of another system: equal, within\n"
        "             rounding, or wrong, and where first\n"
        "  tokenize   write the tokens of a text as a .bin file\n"
        "  golden     make a bundle of recorded runs for other projects' tests\n"
        "  doctor     look for what is wrong with the machine, MPI or BLIS\n"
        "  help       this text; fsdp COMMAND --help lists the options\n\n"
        "Exit status: 0 all well, 1 the verification failed or the verdict is\n"
        "wrong, 2 bad usage or input, 3 a fault at run time.\n",
        out);
}

static void
print_faults(FILE *out)
{
    for (int k = 1; k < FSDP_FAULT_COUNT; k++)
        fprintf(out, "%-20s %s\n", fsdp_fault_name((fsdp_fault_kind_t)k),
                fsdp_fault_text((fsdp_fault_kind_t)k));
}

/* Before MPI has started: the launcher tells which process this is. */
static bool
is_first_process(void)
{
    static const char *const variables[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK",
                                            "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *rank = getenv(variables[i]);
        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static cli_command_t
find_command(const char *name)
{
    if (strcmp(name, "train") == 0)
        return CLI_TRAIN;
    if (strcmp(name, "generate") == 0)
        return CLI_GENERATE;
    if (strcmp(name, "plan") == 0)
        return CLI_PLAN;
    if (strcmp(name, "inspect") == 0)
        return CLI_INSPECT;
    if (strcmp(name, "compare") == 0)
        return CLI_COMPARE;
    if (strcmp(name, "tokenize") == 0)
        return CLI_TOKENIZE;
    if (strcmp(name, "golden") == 0)
        return CLI_GOLDEN;
    return strcmp(name, "doctor") == 0 ? CLI_DOCTOR : 0;
}

/* What needs no MPI; -1: there is more to do. */
static int
without_mpi(cli_command_t command, const cli_options_t *options, bool help,
            fsdp_status_t status)
{
    FILE *out = is_first_process() ? stdout : NULL;
    if (status != FSDP_OK)
        return -1; /* the ranks must agree on it */
    if (help && out != NULL)
        cli_print_command_help(command, out);
    if (help)
        return 0;
    if (command == CLI_GOLDEN)
        return cli_golden(options);
    if (options->inject == NULL || strcmp(options->inject, "list") != 0)
        return -1;
    if (out != NULL)
        print_faults(out);
    return 0;
}

/* If a standard file is closed, the next file that is opened would take its
 * place and get what is meant for the user.  Now writing there fails, as it
 * should. */
static void
occupy_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(FSDP_EXIT_USAGE);
}

/* Ranks that were told different things would wait for each other in vain. */
static fsdp_status_t
check_alike(int argc, char **argv)
{
    fsdp_comm_t *world = fsdp_comm_world();
    int size = fsdp_comm_size(world), other = 0;
    uint64_t mine = 0;
    for (int i = 1; i < argc; i++)
        mine = mine * 31 + fsdp_hash_name(argv[i]);
    uint64_t *all = fsdp_alloc(FSDP_MEM_OTHER, (size_t)size * sizeof *all);
    fsdp_all_gather(world, "options", FSDP_INT64, &mine, all, 1);
    while (other < size && all[other] == all[0])
        other++;
    fsdp_free(all);
    if (other == size)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_USAGE,
                      "rank %d was started with other options than rank 0; "
                      "give all ranks the same",
                      other);
}

/* `status` is that of the options. */
static fsdp_status_t
run_command(cli_command_t command, const cli_options_t *options,
            fsdp_status_t status)
{
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        return status;
    return command == CLI_TRAIN      ? cli_train(options)
           : command == CLI_GENERATE ? cli_generate(options)
           : command == CLI_PLAN     ? cli_plan(options)
           : command == CLI_INSPECT  ? cli_inspect(options)
           : command == CLI_COMPARE  ? cli_compare(options)
           : command == CLI_TOKENIZE ? cli_tokenize(options)
                                     : cli_doctor(options);
}

static int
run(cli_command_t command, int *argc, char ***argv,
    const cli_options_t *options, fsdp_status_t status)
{
    fsdp_init(argc, argv);
    fsdp_comm_set_timeout(options->timeout);
    fsdp_status_t alike = check_alike(*argc, *argv);
    status = alike != FSDP_OK ? alike : run_command(command, options, status);
    bool said = cli_speaks() && (fflush(stdout) != 0 || ferror(stdout));
    if (said)
        fsdp_error(FSDP_ERR_IO, "standard output cannot be written; is the "
                                "disk full or the pipe closed?");
    fsdp_status_t heard =
        fsdp_comm_agree(fsdp_comm_world(), said ? FSDP_ERR_IO : FSDP_OK);
    if (status == FSDP_OK)
        status = heard;
    if (status != FSDP_OK && status != FSDP_ERR_VERIFY && cli_speaks())
        fsdp_print_error();
    fsdp_finalize();
    return fsdp_status_exit_code(status);
}

int
main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    occupy_standard_files();
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
        strcmp(name, "-h") == 0) {
        if (is_first_process())
            print_help(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        if (is_first_process())
            printf("fsdp (%s)\n", PACKAGE_STRING);
        return 0;
    }
    cli_command_t command = find_command(name);
    cli_options_t options = {.timeout = 60};
    bool help = false;
    fsdp_status_t status = FSDP_OK;
    if (command == 0)
        status = fsdp_error(FSDP_ERR_USAGE,
                            name[0] != '\0'
                                ? "unknown command \"%s\"; fsdp help lists them"
                                : "no command given%s; fsdp help lists them",
                            name);
    else
        status =
            cli_options_parse(command, argc - 2, argv + 2, &options, &help);
    int code = without_mpi(command, &options, help, status);
    return code >= 0 ? code : run(command, &argc, &argv, &options, status);
}
