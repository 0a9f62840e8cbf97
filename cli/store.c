/* store.c - the results of a run into files: all of them, or none. */
#include "store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "outfile.h"
#include "places.h"
#include "shardfile.h"
#include "world.h"

enum { FILES = 7 };

/* What goes where; path NULL = not wanted. The last two are no tensors. */
enum { DSINKS = FILES - 2, TRACE = FILES - 1 };

struct target {
    const char *flag, *path;
    enum tensor tensor;
};

static void list_targets(const struct options *o, struct target targets[FILES])
{
    const struct target all[FILES] = {
        { "--out", o->out, TENSOR_OUT },
        { "--lse", o->lse, TENSOR_LSE },
        { "--dq", o->dq, TENSOR_DQ },
        { "--dk", o->dk, TENSOR_DK },
        { "--dv", o->dv, TENSOR_DV },
        [DSINKS] = { "--dsinks", o->dsinks, TENSOR_COUNT },
        [TRACE] = { "--trace", o->trace, TENSOR_COUNT },
    };
    memcpy(targets, all, sizeof all);
}

static int check_targets(const struct options *o, const char *bitmap)
{
    struct target targets[FILES];
    const struct {
        const char *flag, *path;
    } inputs[] = { { "--q", o->q },
                   { "--k", o->k },
                   { "--v", o->v },
                   { "--dout", o->dout },
                   { "--dlse", o->dlse },
                   { "--order", places_is_file(o->trial.order) ? o->trial.order : NULL },
                   { "--sinks", o->trial.sinks },
                   { "--bias", o->trial.bias },
                   { "--pattern", bitmap } };
    list_targets(o, targets);
    for (int i = 0; i < FILES; i++) {
        const struct target *t = &targets[i];
        if (!t->path) continue;
        bool backward = i == DSINKS || (i != TRACE && tensor_is_backward(t->tensor));
        if (backward && !o->trial.backward) return refuse("%s is for --backward", t->flag);
        if (i == DSINKS && !o->trial.sinks) return refuse("--dsinks needs --sinks beside it");
        for (int j = 0; j < i; j++)
            if (targets[j].path && outfile_same(targets[j].path, t->path))
                return refuse("%s and %s name the same file", targets[j].flag, t->flag);
        for (int j = 0; j < COUNT(inputs); j++)
            if (inputs[j].path && outfile_same(inputs[j].path, t->path))
                return refuse("%s would overwrite %s, the file of %s", t->flag, inputs[j].path,
                              inputs[j].flag);
        if (i != TRACE && strstr(t->path, ".safetensors"))
            return refuse("%s: %s: .safetensors files are not in this version; .npy is written",
                          t->flag, t->path);
        int status = outfile_check(t->flag, t->path);
        if (status) return status;
    }
    return EXIT_PASS;
}

int store_check(const struct options *o)
{
    char *bitmap = trial_bitmap(&o->trial);
    int status = check_targets(o, bitmap);
    free(bitmap);
    return status;
}

static struct npy_output describe(const struct trial *t, enum tensor tensor)
{
    return (struct npy_output){
        .dtype = tensor_dtype(t, tensor),
        .axes = tensor == TENSOR_LSE ? 3 : 4,
        .shape = { t->batch, tensor_length(t, tensor), tensor_heads(t, tensor),
                   tensor_dim(t, tensor) },
    };
}

static int write_tensor(const struct engine *engine, const struct target *target,
                        struct outfile *file)
{
    struct npy_output output = describe(engine->trial, target->tensor);
    void *memory;
    int status = engine_gather(engine, target->tensor, &output.data, &memory);
    if (status) return status;
    status = npy_write(file, target->path, &output);
    free(memory);
    return status;
}

static int write_dsinks(const struct engine *engine, const char *path, struct outfile *file)
{
    struct npy_output output = {
        .dtype = RA_F32, .axes = 1, .shape = { engine->trial->q_heads }, .data = engine->dsinks
    };
    return npy_write(file, path, &output);
}

static int write_target(const struct engine *engine, const struct target *targets, int i,
                        struct outfile *file)
{
    const struct target *target = &targets[i];
    if (i == TRACE) return trace_write(engine->setup.trace, file, target->path);
    if (i == DSINKS) return write_dsinks(engine, target->path, file);
    return write_tensor(engine, target, file);
}

static int write_all(const struct engine *engine, const struct target *targets,
                     struct outfile *files)
{
    int status = EXIT_PASS;
    for (int i = 0; i < FILES && !status; i++)
        if (targets[i].path) status = write_target(engine, targets, i, &files[i]);
    return status;
}

/* ---- Ranks that are processes: each writes its part ------------------------------------------- */

/* What the first process tells the others of a file it made. */
struct made {
    int64_t process;
    size_t offsets[FILES]; /* of the values */
};

/* The first process makes all files, of their full length; those that are no tensors it writes. */
static int make_files(const struct engine *engine, const struct target *targets,
                      struct outfile *files, struct made *made)
{
    int status = EXIT_PASS;
    made->process = (int64_t)getpid();
    for (int i = 0; i < FILES && !status; i++) {
        if (!targets[i].path) continue;
        if (i >= DSINKS) {
            status = write_target(engine, targets, i, &files[i]);
            continue;
        }
        struct npy_output output = describe(engine->trial, targets[i].tensor);
        status = npy_write_room(&files[i], targets[i].path, &output, &made->offsets[i]);
    }
    return status;
}

static int write_parts(const struct engine *engine, const struct target *targets,
                       struct outfile *files, const struct made *made)
{
    const struct engine_rank *r = &engine->rank[engine->first];
    int status = EXIT_PASS;
    for (int i = 0; i < DSINKS && !status; i++) {
        enum tensor tensor = targets[i].tensor;
        if (!targets[i].path) continue;
        if (!world_first()) status = outfile_name(&files[i], targets[i].path, (long)made->process);
        int side = tensor_of_keys(tensor);
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        if (!status)
            status = shardfile_write(files[i].temporary, made->offsets[i], engine->trial, tensor,
                                     &shard, &r->views[tensor]);
    }
    return status;
}

static int write_together(const struct engine *engine, const struct target *targets,
                          struct outfile *files)
{
    struct made mine = { .process = 0 }, *all = malloc((size_t)engine->ranks * sizeof *all);
    int status = all ? EXIT_PASS : fault("out of memory: %d ranks", engine->ranks);
    if (targets[TRACE].path) {
        status = world_agree(status);
        if (!status) status = trace_gather(engine->setup.trace);
    }
    if (!status && world_first()) status = make_files(engine, targets, files, &mine);
    status = world_agree(status);
    if (!status) status = world_share(&mine, all, sizeof mine);
    if (!status) status = world_agree(write_parts(engine, targets, files, &all[0]));
    free(all);
    return status;
}

static int commit_all(struct outfile *files)
{
    int status = EXIT_PASS;
    for (int i = 0; i < FILES && !status; i++)
        if (files[i].temporary) status = outfile_commit(&files[i]);
    return status;
}

int store_results(const struct options *o, const struct engine *engine)
{
    struct target targets[FILES];
    struct outfile files[FILES] = { { .path = NULL } };
    list_targets(o, targets);
    int status = engine->joined ? write_together(engine, targets, files)
                                : write_all(engine, targets, files);
    if (!status && world_first()) status = commit_all(files);
    if (engine->joined) status = world_agree(status);
    for (int i = 0; i < FILES; i++) outfile_discard(&files[i]);
    return status;
}
