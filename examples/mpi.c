/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - processes as ranks: mpirun -np 4 examples/mpi. Each has its part of a causal sequence, in
 * zigzag order so that all have the same work; no process has the whole. At the end every process
 * computes its first query by itself and compares. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringattn_mpi.h>

enum { TOKENS = 1021, HEADS = 2, DIM = 32, ROW = HEADS * DIM };

/* The data of a whole sequence, by formula, so that any process can make any part of it. */
static float value(int which, int64_t position, int i)
{
    return sinf(0.37f * (float)(which + 1) * (float)(position * ROW + i) + (float)which);
}

/* q, k, v of the positions this rank owns, and room for its result. */
static int fill(const ra_layout *layout, int rank, float *tensors[4])
{
    ra_run runs[2]; /* zigzag: a chunk from the front and one from the back */
    int64_t count = ra_layout_count(layout, rank), at = 0;
    int64_t run_count = ra_layout_runs(layout, rank, runs, 2);
    for (int t = 0; t < 4; t++)
        if (!(tensors[t] = calloc((size_t)count * ROW + 1, sizeof(float)))) return 1;
    for (int64_t r = 0; r < run_count; r++)
        for (int64_t p = 0; p < runs[r].count; p++, at++)
            for (int t = 0; t < 3; t++)
                for (int i = 0; i < ROW; i++)
                    tensors[t][at * ROW + i] = value(t, runs[r].start + p * runs[r].step, i);
    return 0;
}

/* How far the first row of this rank is from one computed here. */
static double error_of_first(const ra_layout *layout, int rank, const float *out)
{
    ra_run run;
    double sum = 0, worst = 0, row[DIM] = { 0 };
    if (ra_layout_runs(layout, rank, &run, 1) == 0) return 0;
    for (int64_t key = 0; key <= run.start; key++) {
        double dot = 0;
        for (int i = 0; i < DIM; i++)
            dot += (double)value(0, run.start, i) * (double)value(1, key, i);
        double weight = exp(dot / sqrt(DIM)); /* scores are small here */
        sum += weight;
        for (int i = 0; i < DIM; i++) row[i] += weight * (double)value(2, key, i);
    }
    for (int i = 0; i < DIM; i++) worst = fmax(worst, fabs(row[i] / sum - (double)out[i]));
    return worst;
}

static ra_status attend(ra_group *group, float *tensors[4], ra_stats *stats)
{
    ra_plan *plan = NULL;
    ra_pattern *pattern = NULL;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    ra_attend_args args = ra_attend_args_default();
    ra_status status = ra_pattern_causal(&pattern);
    problem.pattern = pattern;
    problem.q_len = TOKENS, problem.q_heads = HEADS, problem.dim = DIM;
    options.partition = "zigzag";
    args.q = ra_const_tensor_packed(tensors[0]), args.k = ra_const_tensor_packed(tensors[1]);
    args.v = ra_const_tensor_packed(tensors[2]), args.out = ra_tensor_packed(tensors[3]);
    if (status == RA_OK) status = ra_plan_create(group, &problem, &options, &plan);
    if (status == RA_OK) status = ra_attend(plan, &args);
    if (status == RA_OK) status = ra_plan_stats(plan, stats);
    ra_plan_destroy(plan);
    ra_pattern_destroy(pattern);
    return status;
}

int main(int argc, char **argv)
{
    int level, rank, ranks;
    ra_group *group;
    ra_layout *layout = NULL;
    float *tensors[4] = { NULL };
    ra_stats stats = ra_stats_default();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ra_status status = ra_mpi_group_create(MPI_COMM_WORLD, NULL, &group);
    if (status == RA_OK) status = ra_layout_create("zigzag", TOKENS, ranks, NULL, &layout);
    if (status == RA_OK && fill(layout, rank, tensors)) status = RA_ERR_MEMORY;
    if (status == RA_OK) status = attend(group, tensors, &stats);
    if (status != RA_OK) { /* a failed group: others may be gone, so MPI cannot end in good order */
        fprintf(stderr, "mpi: rank %d: %s\n", rank, ra_last_error());
        _Exit(3);
    }
    double error = error_of_first(layout, rank, tensors[3]);
    printf("rank %d of %d: %lld bytes sent, error %.1e\n", rank, ranks, (long long)stats.bytes_sent,
           error);
    for (int t = 0; t < 4; t++) free(tensors[t]);
    ra_layout_destroy(layout);
    ra_group_destroy(group);
    MPI_Finalize();
    return !(error < 1e-5);
}
