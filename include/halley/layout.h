/* The flat parameter vector: blocks (contiguous ranges, in the order of the forward pass) and the
 * tensors in them. Most of the system moves ranges and never asks for shapes. */
#ifndef HALLEY_LAYOUT_H
#define HALLEY_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

enum hl_init {
    HL_INIT_NORMAL,
    HL_INIT_NORMAL_RESIDUAL,
    HL_INIT_ZERO,
    HL_INIT_ONE
}; /* RESIDUAL: std / sqrt(2L) (GPT-2) */

/* One named tensor of the flat vector, in storage order. Matrices are stored [out, in] whatever the
 * file format says. */
struct hl_tensor {
    char name[96]; /* Hugging Face name, e.g. model.layers.3.self_attn.q_proj.weight */
    int block;
    int64_t offset; /* elements from the start of the flat vector */
    int64_t n;      /* elements owned, padding included: tensors cover their block without gaps */
    int64_t rows, cols;  /* as stored here, without padding; vectors: rows = 1 */
    int64_t padded_rows; /* >= rows; rows beyond `rows` are zero and stay zero (vocabulary padded to
                            a multiple of 64) */
    int n_dims;          /* 1 or 2 in files */
    bool file_transposed; /* the file holds [cols, rows] (GPT-2's Conv1D) */
    bool decay;           /* weight decay applies: matrices yes (embeddings included), vectors no */
    bool used_twice;      /* tied embedding: its gradient is final after the last of its uses */
    bool hidden_matrix;   /* a matrix between hidden activations: Muon orthogonalises it */
    enum hl_init init;
};

/* A contiguous piece of the flat vector, in elements. */
struct hl_range {
    int64_t offset, n;
};

/* What strategies, optimizers and checkpoints know of a model. */
struct hl_layout {
    int64_t n_parameters; /* of the flat vector, padding included */
    int64_t n_weights;    /* what people count: without padding */
    int n_blocks;
    struct hl_range *blocks; /* ascending, contiguous, cover everything */
    int n_tensors;
    struct hl_tensor *tensors; /* in storage order */
};

#endif
