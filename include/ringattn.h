/* ringattn.h - exact attention for sequences that do not fit, in C.
 *
 * Queries stay where they are; keys and values travel between ranks in blocks, and every block is
 * folded into a running softmax. No score matrix ever exists.
 *
 * CALL ORDER
 *     ra_group_create_local()   a group of ranks: one handle per rank, each used by one thread;
 *                               ra_group_run() starts a thread per handle for you;
 *                               ra_group_join() where ranks are processes
 *     ra_pattern_parse()        who looks at whom ("causal", "window:512", ...)
 *     ra_plan_create()          who computes what, in which order; allocates every buffer
 *     ra_attend()               forward, as often as you like; allocates nothing
 *     ra_gradient()             backward, likewise
 *     ra_plan_destroy(), ra_pattern_destroy(), ra_group_destroy()
 *
 * TENSORS are [batch, position, head, dim] with any strides as long as dim is contiguous. Every
 * rank passes the shard it owns: the positions its partition gives it, in ascending order.
 * ra_layout_* cuts, permutes and restores tokens, positions and labels.
 *
 * OWNERSHIP  Handles are opaque and belong to the caller, who destroys each one; every destroy
 * function accepts NULL. The library keeps no caller pointer after a call returns. A plan must be
 * destroyed before its group; a pattern may be destroyed as soon as ra_plan_create() returned.
 *
 * THREADS  One thread at a time per handle; a group handle and its plans count as one. Different
 * handles may be used at the same time, also handles of the same group: that is how a group in one
 * process works. ra_group_abort() is the exception: any thread may call it at any time.
 *
 * ERRORS  Functions that can fail return ra_status and write their result only on success;
 * ra_last_error() then holds one sentence, per thread. The library never prints, exits or aborts.
 *
 * STRUCTS that the caller fills start with `size` and come from a *_default() function. Zero means
 * "default" for every field, and new fields are only ever appended.
 */
#ifndef RINGATTN_H
#define RINGATTN_H

#include <stddef.h>
#include <stdint.h>

#define RA_VERSION_MAJOR 0
#define RA_VERSION_MINOR 3
#define RA_VERSION_PATCH 0

#if defined(__GNUC__)
#define RA_API __attribute__((visibility("default")))
#else
#define RA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

/* Every status: name, value, what it means. */
#define RA_STATUS_LIST(X)                                                                          \
    X(RA_OK, 0, "success")                                                                         \
    X(RA_ERR_ARGUMENT, 1, "an argument is wrong")                                                  \
    X(RA_ERR_UNSUPPORTED, 2, "this combination is not supported")                                  \
    X(RA_ERR_MEMORY, 3, "memory could not be allocated")                                           \
    X(RA_ERR_BUDGET, 4, "the memory budget is too small")                                          \
    X(RA_ERR_MISMATCH, 5, "the ranks disagree about the problem")                                  \
    X(RA_ERR_TIMEOUT, 6, "a peer sent no heartbeat in time")                                       \
    X(RA_ERR_PEER, 7, "a peer failed")                                                             \
    X(RA_ERR_ABORTED, 8, "the group was aborted")                                                  \
    X(RA_ERR_SYSTEM, 9, "the operating system refused a request")                                  \
    X(RA_ERR_CORRUPT, 10, "a message changed on its way")

typedef enum ra_status {
#define RA_STATUS_ENUM_(name, value, text) name = value,
    RA_STATUS_LIST(RA_STATUS_ENUM_)
#undef RA_STATUS_ENUM_
} ra_status;

/* The sentence that belongs to the last failure on this thread; "" if there was none. */
RA_API const char *ra_last_error(void);

/* "RA_ERR_BUDGET" and "the memory budget is too small"; "unknown status" for other numbers. */
RA_API const char *ra_status_name(ra_status status);
RA_API const char *ra_status_text(ra_status status);

/* "0.2.0": the library that is running, which may be newer than the header. */
RA_API const char *ra_version(void);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Where the library takes its memory from. Both functions may be called from any thread. */
typedef struct ra_allocator {
    size_t size;                                                   /* by ra_allocator_default() */
    void *(*alloc)(void *context, size_t bytes, size_t alignment); /* NULL = out of memory */
    void (*free)(void *context, void *memory, size_t bytes);       /* never called with NULL */
    void *context;
} ra_allocator;
static inline ra_allocator ra_allocator_default(void)
{
    ra_allocator a = { sizeof(ra_allocator), NULL, NULL, NULL };
    return a;
}

/* Replaces the allocator of the process; NULL restores the C library's. Refused while any handle is
 * alive, because memory must go back where it came from. No other thread may use the library
 * meanwhile. */
RA_API ra_status ra_allocator_set(const ra_allocator *allocator);

/* Bytes the library holds right now, over all handles. 0 when every handle is destroyed. */
RA_API size_t ra_allocated_bytes(void);

/* ---- Types and tensors ----------------------------------------------------------------------- */

typedef enum ra_dtype {
    RA_F32 = 0,
    RA_BF16 = 1, /* upper half of an f32 */
    RA_F16 = 2   /* IEEE half */
} ra_dtype;

/* A view of [batch, position, head, dim]; strides count elements and dim has stride 1. All strides
 * 0 means packed in that order. Inputs are only read. This struct never grows. */
typedef struct ra_tensor {
    void *data;
    int64_t batch_stride;
    int64_t position_stride;
    int64_t head_stride;
} ra_tensor;
static inline ra_tensor ra_tensor_packed(void *data)
{
    ra_tensor t = { data, 0, 0, 0 };
    return t;
}

/* Positions start, start + step, ... (count of them). This struct never grows. */
typedef struct ra_run {
    int64_t start;
    int64_t step; /* at least 1 */
    int64_t count;
} ra_run;

/* ---- Patterns -------------------------------------------------------------------------------- */

typedef struct ra_pattern ra_pattern; /* who looks at whom, in global positions */

/* Typed constructors. Query i of Nq sits at position i + Nk - Nq among the Nk keys. */
RA_API ra_status ra_pattern_full(ra_pattern **out);
RA_API ra_status ra_pattern_causal(ra_pattern **out); /* keys up to the query's position */
/* Keys from position - left to position + right. */
RA_API ra_status ra_pattern_window(int64_t left, int64_t right, ra_pattern **out);
/* The first keys for every query, causal behind them. */
RA_API ra_status ra_pattern_prefix(int64_t keys, ra_pattern **out);

/* LongNet's dilated attention: in a branch, segment a holds positions [a segment, (a + 1) segment),
 * and query head j selects those at a segment + (j mod rate) + t rate, for queries and keys alike.
 * A query attends to the keys every branch selects for it, in one softmax: a key of two branches
 * counts twice. This struct never grows. */
typedef struct ra_branch {
    int64_t segment;
    int64_t rate;
} ra_branch;
RA_API ra_status ra_pattern_dilated(const ra_branch *branches, int count, ra_pattern **out);

/* Blocks of `block` positions; query block i sees key block j where any of its terms says so. Terms
 * are added one by one: "local=G", "global=G", "strided=S", "dilated=R/G", "levels=S/G,S/G,...",
 * "random=DENSITY", "seed=K", "bitmap=FILE.npy". */
RA_API ra_status ra_pattern_blocks(int64_t block, ra_pattern **out);

/* Adds one word of those behind a semicolon in ra_pattern_parse(): a term of blocks, "causal",
 * "docs=...", or an option of dilated: "dedup" (a key counts once), "groups" (each of k head groups
 * has one branch), "offsets=block" (head j of H has the offset floor(j / ceil(H / rate)), as in
 * torchscale, instead of "offsets=cyclic", j mod rate). */
RA_API ra_status ra_pattern_add(ra_pattern *pattern, const char *term);

/* The bitmap term from memory: bytes [heads, blocks, blocks], not 0 = active; heads is 1 or the
 * query heads. Copied. */
RA_API ra_status ra_pattern_add_bitmap(ra_pattern *pattern, int heads, int64_t blocks,
                                       const uint8_t *active);

/* Modifiers, for every pattern. Causal removes keys after the query's position. Documents
 * (bounds 0, a, b, ..., n; empty ones are legal; copied) let a query see its own document only. */
RA_API ra_status ra_pattern_set_causal(ra_pattern *pattern);
RA_API ra_status ra_pattern_set_documents(ra_pattern *pattern, const int64_t *bounds,
                                          int64_t count);

/* The same from text: "full", "causal", "window:512", "window:256,256", "prefix:128",
 * "dilated:2048/1,4096/2", "dilated:...;dedup", "dilated:...;groups",
 * "dilated:...;offsets=block", "blocks:64;local=4;global=1" and every other term, each with
 * ";causal" and ";docs=0,120,1248,4232" behind it. */
RA_API ra_status ra_pattern_parse(const char *text, ra_pattern **out);

/* Writes the text of a pattern, which parses back to the same pattern (but for a bitmap from
 * memory, which has no text and is written as "(memory)"), and sets *length to its length; like
 * snprintf it cuts at `capacity` and always ends with 0. */
RA_API ra_status ra_pattern_format(const ra_pattern *pattern, char *text, size_t capacity,
                                   size_t *length);

RA_API void ra_pattern_destroy(ra_pattern *pattern);

/* ---- Order: a permutation of positions ------------------------------------------------------- */

/* Index i of the order holds the token of original position positions[i]. Segments, blocks, windows
 * and partitions count indices; causal, prefix, documents, ALiBi, bias and dropout go by original
 * positions. Needs as many queries as keys. */
typedef struct ra_order ra_order;

/* "sequential", "hilbert" (the smallest power-of-two square that holds n), "hilbert:HxW" (rows x
 * columns, at least n cells), "shuffled:SEED" (for comparison). */
RA_API ra_status ra_order_parse(const char *text, int64_t length, ra_order **out);

/* Any permutation of 0 .. length - 1. Copied. */
RA_API ra_status ra_order_custom(const int64_t *positions, int64_t length, ra_order **out);

/* How many positions it orders; and the original position of every index. */
RA_API int64_t ra_order_length(const ra_order *order);
RA_API ra_status ra_order_positions(const ra_order *order, int64_t *positions);
RA_API void ra_order_destroy(ra_order *order);

/* ---- Problem --------------------------------------------------------------------------------- */

/* What is to be computed; says nothing about ranks or devices. */
typedef struct ra_problem {
    size_t size;               /* by ra_problem_default() */
    const ra_pattern *pattern; /* NULL = full; copied by ra_plan_create() */
    ra_dtype dtype;            /* of q, k, v, out and all gradients; state is always f32 */
    int64_t batch;             /* 0 = 1 */
    int64_t q_len;             /* queries over all ranks */
    int64_t k_len;             /* keys over all ranks; 0 = q_len */
    int q_heads;               /* at least 1 */
    int kv_heads;  /* divides q_heads; 0 = q_heads. Query head j reads j * kv_heads / q_heads */
    int dim;       /* 1 to 576 */
    int value_dim; /* 1 to 576; 0 = dim */
    float scale;   /* of q.k; 0 = 1/sqrt(dim) */
    const ra_order *order; /* NULL = sequential; copied by ra_plan_create() */
    float softcap;         /* scale q.k becomes softcap tanh(scale q.k / softcap); 0 = stays */
    const float *alibi;    /* [q_heads] slopes: scores fall by slope |p - j|; NULL = none; copied */
    double dropout;        /* share of weights that is dropped, from 0 to below 1 */
} ra_problem;
static inline ra_problem ra_problem_default(void)
{
    ra_problem p = {
        sizeof(ra_problem), NULL, RA_F32, 0, 0, 0, 0, 0, 0, 0, 0.0f, NULL, 0.0f, NULL, 0.0
    };
    return p;
}

/* Sets seen[j] to how often query `query` (0 to q_len - 1) of `head` sees key j, for all k_len
 * keys, both by original position; 255 stands for more. */
RA_API ra_status ra_problem_row(const ra_problem *problem, int head, int64_t query, uint8_t *seen);

/* ---- Layout: which positions a rank owns ----------------------------------------------------- */

typedef struct ra_layout ra_layout;

/* By rule: "contiguous" (also NULL), "zigzag", "striped", each with ";perdoc" behind it to apply
 * the rule inside each document of `pattern` (which may be NULL otherwise). */
RA_API ra_status ra_layout_create(const char *partition, int64_t length, int ranks,
                                  const ra_pattern *pattern, ra_layout **out);

/* Custom: rank r owns the next counts[r] runs of `runs`. Every position below `length` must be
 * owned exactly once. */
RA_API ra_status ra_layout_create_custom(int64_t length, int ranks, const ra_run *runs,
                                         const int64_t *counts, ra_layout **out);
RA_API void ra_layout_destroy(ra_layout *layout);

/* How many positions a rank owns, and its runs: writes up to `capacity` and returns how many there
 * are. Runs are ascending, and the shard holds them one behind the other. */
RA_API int64_t ra_layout_count(const ra_layout *layout, int rank);
RA_API int64_t ra_layout_runs(const ra_layout *layout, int rank, ra_run *runs, int64_t capacity);

/* One array to move between global order and rank order: tokens, labels, position ids, or a whole
 * tensor. This struct never grows. */
typedef struct ra_array {
    const void *from;
    void *to;      /* must not overlap `from` */
    int64_t batch; /* how many sequences lie one behind the other */
    size_t bytes;  /* of one position: 4 for int32 labels, heads * dim * 4 for f32 tensors */
} ra_array;

/* permute: global order -> rank 0's shard, rank 1's shard, ... for every array in one call; the
 * shard of a rank starts behind ra_layout_count() positions of each rank before it. restore: back.
 * take: global order -> the shard of one rank. give: that shard -> global order, leaving other
 * positions alone. */
RA_API ra_status ra_layout_permute(const ra_layout *layout, const ra_array *arrays, int count);
RA_API ra_status ra_layout_restore(const ra_layout *layout, const ra_array *arrays, int count);
RA_API ra_status ra_layout_take(const ra_layout *layout, int rank, const ra_array *arrays,
                                int count);
RA_API ra_status ra_layout_give(const ra_layout *layout, int rank, const ra_array *arrays,
                                int count);

/* The same between original order and the index of an order: `to` of permute holds index after
 * index. Tokens, labels and position ids go through permute, then through a layout; results come
 * back by the layout, then by restore. */
RA_API ra_status ra_order_permute(const ra_order *order, const ra_array *arrays, int count);
RA_API ra_status ra_order_restore(const ra_order *order, const ra_array *arrays, int count);

/* ---- Group of ranks -------------------------------------------------------------------------- */

typedef struct ra_group ra_group; /* one rank's membership in a group */

typedef enum ra_log_level { RA_LOG_INFO = 0, RA_LOG_WARNING = 1 } ra_log_level;
typedef void (*ra_log_fn)(void *context, ra_log_level level, const char *text);

/* One thing a rank did, for timelines. This struct never grows. */
typedef struct ra_trace_event {
    const char *name; /* "attend", "move", "wait", ...; static */
    int rank;
    int hop;
    int block;    /* whose keys; -1 where none */
    double start; /* seconds on a clock shared by the ranks of this process */
    double seconds;
} ra_trace_event;
typedef void (*ra_trace_fn)(void *context, const ra_trace_event *event);

typedef struct ra_group_options {
    size_t size;    /* by ra_group_options_default() */
    double timeout; /* seconds a silent peer is waited for; 0 = 60 */
    int threads; /* per rank; 0 = RINGATTN_THREADS, or the cores shared out among the local ranks */
    ra_log_fn log;     /* called by the threads of the group, one rank per thread; NULL = silence */
    ra_trace_fn trace; /* likewise */
    void *context;     /* handed to log and trace */
    /* Buffers of at least so many bytes are shared by the rank's plans through its pool; 0 = 16
     * MiB, SIZE_MAX = none. */
    size_t pool_threshold;
    /* Not 0: every message carries a sum of its bytes, which its receiver compares; one that
     * changed on its way is RA_ERR_CORRUPT. The same on all ranks. Not for custom transports. */
    int checksum;
} ra_group_options;
static inline ra_group_options ra_group_options_default(void)
{
    ra_group_options o = { sizeof(ra_group_options), 0.0, 0, NULL, NULL, NULL, 0, 0 };
    return o;
}

/* Ranks as threads of this process. Writes one handle per rank to groups[0 .. ranks - 1]; each is
 * to be used by a thread of its own, for they wait for one another. */
RA_API ra_status ra_group_create_local(int ranks, const ra_group_options *options,
                                       ra_group **groups);

/* The same for any transport that serves all its ranks in this process, by name; NULL = "local". */
RA_API ra_status ra_group_create(const char *transport, int ranks, const ra_group_options *options,
                                 ra_group **groups);

/* This process as one rank of a group of processes, by the name of a transport that joins them:
 * "mpi". Every process of the group calls it. `where` is what the transport's own header says (for
 * "mpi" see ringattn_mpi.h), NULL = all processes that were started together; a process that was
 * started alone is a group of one. Transports of this kind are plug-ins, found at run time:
 * RINGATTN_PLUGINS names folders to look in first. RA_ERR_UNSUPPORTED, with a sentence that says
 * why, where there is none. */
RA_API ra_status ra_group_join(const char *transport, const void *where,
                               const ra_group_options *options, ra_group **out);

/* A message of a custom transport. This struct never grows. */
typedef struct ra_message {
    int peer; /* the other rank */
    int tag;  /* the n-th message of a tag between two ranks meets the n-th receive of that tag */
    void *data;
    size_t bytes; /* both sides agree on it */
} ra_message;

/* Bytes between ranks, done by the caller. `post` starts sends and receives and returns at once;
 * the buffers stay busy until `wait` has returned for its ticket, and every ticket is waited for
 * before the next post. A failure of either ends the run; say why with ra_transport_error(). */
typedef struct ra_transport_callbacks {
    size_t size; /* by ra_transport_callbacks_default() */
    void *context;
    ra_status (*post)(void *context, const ra_message *sends, int send_count,
                      const ra_message *recvs, int recv_count, void **ticket);
    ra_status (*wait)(void *context, void *ticket, double timeout);
    ra_status (*poll)(void *context); /* between slices of work: show life, go on; may be NULL */
    void (*abort)(void *context, const char *reason); /* tell the others; any thread; may be NULL */
    void (*close)(void *context);                     /* by ra_group_destroy(); may be NULL */
} ra_transport_callbacks;
static inline ra_transport_callbacks ra_transport_callbacks_default(void)
{
    ra_transport_callbacks c = {
        sizeof(ra_transport_callbacks), NULL, NULL, NULL, NULL, NULL, NULL
    };
    return c;
}

/* Sets ra_last_error() from inside a callback and returns `status`, for one-line returns. */
RA_API ra_status ra_transport_error(ra_status status, const char *text);

/* Rank `rank` of `ranks`, whose messages the caller carries. */
RA_API ra_status ra_group_create_custom(int ranks, int rank,
                                        const ra_transport_callbacks *callbacks,
                                        const ra_group_options *options, ra_group **out);

RA_API int ra_group_rank(const ra_group *group);
RA_API int ra_group_ranks(const ra_group *group);
RA_API int ra_group_threads(const ra_group *group);

/* Tells every rank the same number of bytes of every other: all[0 .. ranks - 1] become theirs in
 * the order of ranks, this rank's own included. For a few bytes, such as figures to be added up;
 * returns when all ranks have called it. Every rank of the group calls it; fails like
 * ra_attend(). */
RA_API ra_status ra_group_share(ra_group *group, const void *mine, void *all, size_t bytes);

/* Between calls: shows the others that this rank lives while it does something else for longer than
 * the timeout. Fails once the group has failed. Cheap; the thread of the group. */
RA_API ra_status ra_group_poll(ra_group *group);

/* Ends what the ranks of this group are doing: each returns RA_ERR_ABORTED with this reason within
 * one slice of work. (With custom callbacks it is theirs to tell the other ranks, and what these
 * return.) The group is then good for nothing but ra_group_destroy(). Any thread. */
RA_API void ra_group_abort(ra_group *group, const char *reason);
RA_API void ra_group_destroy(ra_group *group);

/* The pool of a rank. Plans of one group handle run one at a time and keep nothing in their buffers
 * between runs, so large ones are shared: ten plans cost as much as the largest of them. */
typedef struct ra_pool {
    size_t size;          /* by ra_pool_default() */
    size_t threshold;     /* smaller buffers belong to their plan alone */
    int64_t buffers;      /* in the pool */
    size_t bytes;         /* of all of them */
    size_t bytes_idle;    /* of those no plan uses now */
    int64_t hits, misses; /* requests served by a buffer there was, and by a new one */
} ra_pool;
static inline ra_pool ra_pool_default(void)
{
    ra_pool p = { sizeof(ra_pool), 0, 0, 0, 0, 0, 0 };
    return p;
}
RA_API ra_status ra_group_pool(const ra_group *group, ra_pool *out);
/* Gives idle buffers back to the system. */
RA_API ra_status ra_group_trim(ra_group *group);

/* Calls body(groups[i], context) for each handle, the first on this thread and the others on
 * threads of their own, and waits for all. A body that fails aborts the group, so nobody is left
 * waiting. Returns the status of the rank that was the cause, with its sentence in
 * ra_last_error(). */
typedef ra_status (*ra_rank_fn)(ra_group *group, void *context);
RA_API ra_status ra_group_run(ra_group *const *groups, int count, ra_rank_fn body, void *context);

/* ---- Plan ------------------------------------------------------------------------------------ */

typedef struct ra_plan ra_plan; /* who computes what, in which order, with all its buffers */

/* What a rank and its links can do; 0 = not known. */
typedef struct ra_machine {
    size_t size;           /* by ra_machine_default() */
    double latency;        /* seconds of a round of messages, however small */
    double bandwidth;      /* bytes per second that a rank sends, and receives at the same time */
    double flops;          /* per second and rank, forward, while all ranks work */
    double backward_flops; /* and backward */
} ra_machine;
static inline ra_machine ra_machine_default(void)
{
    ra_machine m = { sizeof(ra_machine), 0.0, 0.0, 0.0, 0.0 };
    return m;
}

typedef struct ra_plan_options {
    size_t size; /* by ra_plan_options_default() */
    /* Who computes what where: "ring" (also NULL), "allgather", "ulysses", "2d:UxR", "auto". */
    const char *strategy;
    const char *partition;      /* as in ra_layout_create(); NULL = contiguous */
    const ra_layout *layout;    /* instead of a partition: queries, and keys if kv_layout is NULL */
    const ra_layout *kv_layout; /* keys, where k_len differs from q_len */
    const char *kernel;         /* by name; NULL = RINGATTN_KERNEL, or the best this CPU can run */
    int backward;               /* 1: ra_gradient() will be called; its buffers are made now */
    size_t memory; /* budget in bytes per rank, caller's shards included; 0 = no limit */
    int ranks;     /* only without a group: the ranks there would be */
    int rank;      /* only without a group: the rank to plan for */
    int threads;   /* only without a group: threads there would be; 0 = 1 */
    int bias; /* 1: runs will have a bias; a strategy that cannot take one is refused at once */
    /* What predictions are made with, and "auto" chooses by, the same on every rank; 0 = what
     * `machine` says, or what is usual for the transport. */
    double latency;        /* seconds of a round of messages, however small */
    double bandwidth;      /* bytes per second that a rank sends, and receives at the same time */
    double flops;          /* per second and rank */
    const char *transport; /* only without a group: the transport there would be; NULL = "local" */
    double backward_flops; /* of ra_gradient(); 0 = as flops, where that is given */
    const ra_machine *machine; /* by ra_group_measure(); NULL = nothing was measured */
} ra_plan_options;
static inline ra_plan_options ra_plan_options_default(void)
{
    ra_plan_options o = { sizeof(ra_plan_options),
                          NULL,
                          NULL,
                          NULL,
                          NULL,
                          NULL,
                          0,
                          0,
                          0,
                          0,
                          0,
                          0,
                          0.0,
                          0.0,
                          0.0,
                          NULL,
                          0.0,
                          NULL };
    return o;
}

/* Measures the links of a group, between neighbours, and its kernel, for the dtype and dims of a
 * problem and, of the options, `kernel` and `backward`. Every rank calls it and all get the same:
 * the longest latency, the least of the rest. Takes a tenth of a second with a fast kernel, up to
 * seconds with a slow one or slow links, and some megabytes per thread that no budget counts. */
RA_API ra_status ra_group_measure(ra_group *group, const ra_problem *problem,
                                  const ra_plan_options *options, ra_machine *out);

/* Makes the plan of this rank. Every rank makes its own, from the same problem and options; they
 * compare before the first message. Without a group (NULL) the plan can be asked but not run, and
 * costs no buffers: for sizing. */
RA_API ra_status ra_plan_create(ra_group *group, const ra_problem *problem,
                                const ra_plan_options *options, ra_plan **out);
RA_API void ra_plan_destroy(ra_plan *plan);

/* Positions of this rank's query and key shards. */
RA_API int64_t ra_plan_q_count(const ra_plan *plan);
RA_API int64_t ra_plan_k_count(const ra_plan *plan);
RA_API const char *ra_plan_kernel(const ra_plan *plan);
/* The strategy that was chosen, with its numbers: "2d:2x4". */
RA_API const char *ra_plan_strategy(const ra_plan *plan);
/* And why, as a sentence: what "auto" predicted for each that could be used. */
RA_API const char *ra_plan_why(const ra_plan *plan);
/* The figures that predictions are made with, and which of them were given, measured or assumed. */
RA_API const char *ra_plan_figures(const ra_plan *plan);

/* What a run does or did, on this rank. */
typedef struct ra_stats {
    size_t size;  /* by ra_stats_default() */
    int64_t hops; /* rounds of messages this rank took part in */
    int64_t bytes_sent;
    int64_t bytes_received;
    int64_t pairs;       /* query-key pairs this rank folds, over heads and batch */
    double flops;        /* forward 2 pairs (D + Dv), backward 2 pairs (3 D + 2 Dv) */
    double seconds;      /* in a forecast as predicted, as the next one */
    double wait_seconds; /* communication that no work could hide */
} ra_stats;
static inline ra_stats ra_stats_default(void)
{
    ra_stats s = { sizeof(ra_stats), 0, 0, 0, 0, 0.0, 0.0, 0.0 };
    return s;
}
/* The last run, as it was counted; and any next run, as it is planned. */
RA_API ra_status ra_plan_stats(const ra_plan *plan, ra_stats *out);
RA_API ra_status ra_plan_forecast(const ra_plan *plan, int backward, ra_stats *out);

/* Bytes this rank needs, by purpose. `total` is what a budget is held against. */
typedef struct ra_memory {
    size_t size;      /* by ra_memory_default() */
    size_t shard;     /* the caller's tensors of this rank */
    size_t travel;    /* blocks of K and V on their way, or gathered; what ranks swap */
    size_t state;     /* running softmax of rows that span hops, and of stretches of keys */
    size_t gradient;  /* f32 sums of dQ, dK, dV, here and on their way */
    size_t workspace; /* of the kernel, over the threads of this rank; has a bound, whatever n is */
    size_t
        bookkeeping; /* the plan itself: steps, rows, messages, its copies of what it was given */
    size_t total;
} ra_memory;
static inline ra_memory ra_memory_default(void)
{
    ra_memory m = { sizeof(ra_memory), 0, 0, 0, 0, 0, 0, 0 };
    return m;
}
RA_API ra_status ra_plan_memory(const ra_plan *plan, ra_memory *out);

/* Prints the steps of the plan, a line per call of `line`, without line ends. */
typedef void (*ra_line_fn)(void *context, const char *line);
RA_API ra_status ra_plan_explain(const ra_plan *plan, int backward, ra_line_fn line, void *context);

/* ---- Attend and gradient --------------------------------------------------------------------- */

/* Called on the rank's own thread as work is done, `done` from 0 to 1. Not 0 ends the run with
 * RA_ERR_ABORTED on every rank. */
typedef int (*ra_progress_fn)(void *context, double done);

/* Added to the scores: [1 or batch, 1 or q_heads, q_count, k_len], f32 or bytes as a mask. Rows are
 * the queries of this rank's shard, columns all keys by original position. Strides count elements;
 * 0 for batch or head means that all share one, 0 for query means k_len. This struct never
 * grows. */
typedef struct ra_bias {
    const void *data; /* NULL = none */
    int mask;         /* 1: bytes, 0 hides the key; 0: f32, added; -INFINITY hides */
    int64_t batch_stride;
    int64_t head_stride;
    int64_t query_stride;
} ra_bias;

typedef struct ra_attend_args {
    size_t size;   /* by ra_attend_args_default() */
    ra_tensor q;   /* [batch, q_count, q_heads, dim] */
    ra_tensor k;   /* [batch, k_count, kv_heads, dim] */
    ra_tensor v;   /* [batch, k_count, kv_heads, value_dim] */
    ra_tensor out; /* [batch, q_count, q_heads, value_dim], written */
    float *lse;    /* [batch, q_count, q_heads] packed, natural log, written; NULL = not wanted */
    ra_progress_fn progress; /* NULL = none */
    void *context;           /* handed to progress */
    ra_bias bias;
    const float *sinks;    /* [q_heads]: one more key with this logit and value 0; NULL = none */
    uint64_t dropout_seed; /* of this run; the same on every rank and in ra_gradient() */
} ra_attend_args;
/* clang-format off */
static inline ra_attend_args ra_attend_args_default(void)
{
    ra_attend_args a = { sizeof(ra_attend_args), { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 },
                         { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 }, NULL, NULL, NULL,
                         { NULL, 0, 0, 0, 0 }, NULL, 0 };
    return a;
}
/* clang-format on */

/* out = softmax(scale q k^T) v over the pattern. Rows that see nothing give 0 and LSE = -inf. Every
 * rank of the group calls it. If it fails on one of several ranks, the group is aborted on all. */
RA_API ra_status ra_attend(ra_plan *plan, const ra_attend_args *args);

typedef struct ra_gradient_args {
    size_t size; /* by ra_gradient_args_default() */
    ra_tensor q;
    ra_tensor k;
    ra_tensor v;
    ra_tensor out;     /* as ra_attend() wrote it; read */
    const float *lse;  /* likewise; required */
    ra_tensor dout;    /* shaped like out */
    const float *dlse; /* gradient through the LSE, shaped like lse; NULL = 0 */
    ra_tensor dq;      /* written, as are dk and dv; shaped like q, k and v */
    ra_tensor dk;
    ra_tensor dv;
    ra_progress_fn progress;
    void *context;
    ra_bias bias; /* this and the next two as in ra_attend() */
    const float *sinks;
    uint64_t dropout_seed;
    /* [q_heads], written: gradient of the sinks from this rank's queries, to be added up over the
     * ranks; NULL = not wanted. */
    float *dsinks;
} ra_gradient_args;
/* clang-format off */
static inline ra_gradient_args ra_gradient_args_default(void)
{
    ra_gradient_args a = { sizeof(ra_gradient_args), { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 },
                           { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 }, NULL, { NULL, 0, 0, 0 }, NULL,
                           { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 }, { NULL, 0, 0, 0 }, NULL, NULL,
                           { NULL, 0, 0, 0, 0 }, NULL, 0, NULL };
    return a;
}
/* clang-format on */

/* Needs a plan made with `backward`. Every rank of the group calls it; fails like ra_attend(). */
RA_API ra_status ra_gradient(ra_plan *plan, const ra_gradient_args *args);

/* ---- State: attention in pieces, in any order ------------------------------------------------ */

typedef struct ra_state ra_state; /* running softmax (m, l, acc) of all queries of a problem */

/* Shapes, pattern, softcap and ALiBi come from the problem and are copied; a state takes no order
 * and no dropout. `kernel` as in ra_plan_options. */
RA_API ra_status ra_state_create(const ra_problem *problem, const char *kernel, ra_state **out);
RA_API void ra_state_destroy(ra_state *state);

/* Back to (-inf, 0, 0); a new state starts so. */
RA_API ra_status ra_state_init(ra_state *state);

/* Folds keys first_key to first_key + keys - 1 of the problem's k_len, which k and v hold from
 * their first position on. q holds all queries. Each key must be folded once, in any order. */
RA_API ra_status ra_state_fold(ra_state *state, const ra_tensor *q, const ra_tensor *k,
                               const ra_tensor *v, int64_t first_key, int64_t keys);

/* Another number of keys, for a cache that grew; what was folded stays. Queries keep sitting at the
 * end: query i at position i + keys - q_len. Allocates nothing. */
RA_API ra_status ra_state_set_keys(ra_state *state, int64_t keys);

/* Merges the states that the ranks of a group folded from their own keys: afterwards every rank
 * holds the sum, with the same bits. Every rank of the group calls it. If it fails on one, the
 * group is aborted on all and the states hold nothing of use until ra_state_init(). */
RA_API ra_status ra_state_reduce(ra_state *state, ra_group *group);

/* into += from, for states of the same shape that folded different keys. Safe at -inf. */
RA_API ra_status ra_state_merge(ra_state *into, const ra_state *from);

/* out = acc / l and lse = m + ln l; 0 and -inf where nothing was folded. The state stays as it
 * is. */
RA_API ra_status ra_state_finish(const ra_state *state, const ra_tensor *out, float *lse);

/* The same with one more key per head, [q_heads] logits, folded into the result only. */
RA_API ra_status ra_state_finish_sinks(const ra_state *state, const float *sinks,
                                       const ra_tensor *out, float *lse);

/* The state as flat memory, to be sent elsewhere and written there: m in units of log2, then l,
 * each [batch, query, head], then acc [batch, query, head, value_dim], all f32. Same layout on
 * every machine of one byte order. */
RA_API void *ra_state_data(ra_state *state, size_t *bytes);

/* Merges two finished partials, rows x dim f32 packed, into the first: L = logaddexp(L1, L2),
 * o = exp(L1 - L) o1 + exp(L2 - L) o2. Safe at -inf. */
RA_API ra_status ra_partial_merge(int64_t rows, int dim, float *out, float *lse,
                                  const float *other_out, const float *other_lse);

/* ---- What there is --------------------------------------------------------------------------- */

/* One row of the library's tables. */
typedef struct ra_part {
    size_t size; /* by ra_part_default() */
    const char *name;
    const char *summary; /* one line */
    int usable;          /* 1 if it works on this machine */
    int chosen;          /* 1 if it is what "default" means here */
    const char *why;     /* the reason for the two above, as a sentence */
    const char *samples; /* ways to write it, small enough for tests, with a space between */
    unsigned dtypes;     /* that a kernel takes: bits 1 << ra_dtype; 0 for other kinds */
    int64_t joins; /* 1: a transport whose ranks are processes, for ra_group_join(); 0 otherwise */
} ra_part;
static inline ra_part ra_part_default(void)
{
    ra_part p = { sizeof(ra_part), NULL, NULL, 0, 0, NULL, NULL, 0, 0 };
    return p;
}

/* `kind` is "kernel", "device", "transport", "pattern", "order", "partition" or "strategy"; index
 * from 0. RA_ERR_ARGUMENT behind the last one. */
RA_API ra_status ra_part_at(const char *kind, int index, ra_part *out);

/* A system by the name it is known by, and what it stands for here. */
typedef struct ra_system {
    size_t size; /* by ra_system_default() */
    const char *name;
    const char *summary;  /* one line */
    const char *pattern;  /* as in ra_pattern_parse(); NULL = leaves the choice open, as the next */
    const char *order;    /* as in ra_order_parse() */
    const char *strategy; /* as in ra_plan_options */
    const char *partition; /* likewise */
    const char *transport; /* as in ra_group_create() */
    const char *missing;   /* NULL, or what it needs that this library does not have */
} ra_system;
static inline ra_system ra_system_default(void)
{
    ra_system s = { sizeof(ra_system), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL };
    return s;
}

/* From 0; RA_ERR_ARGUMENT behind the last one. */
RA_API ra_status ra_system_at(int index, ra_system *out);
/* By name, in any case. */
RA_API ra_status ra_system_find(const char *name, ra_system *out);

#ifdef __cplusplus
}
#endif
#endif
