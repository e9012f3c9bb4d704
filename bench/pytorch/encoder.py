"""BERT-base's encoder, written from its paper: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", 2019.

12 layers of width 768 with 12 heads and 3072 between, normalized after each half, as in the paper's own code: query, key and value
are three linear layers. (torch.nn.TransformerEncoder makes a single op of a whole layer in evaluation mode, which torch.compile
leaves unchanged.) No embeddings and no pooler: it takes the embeddings' output. Modules have no state but their parameters. """

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, BETWEEN = 768, 12, 3072
EPSILON = 1e-12  # of its layer norms
DROPOUT = 0.1


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.attended_norm = nn.LayerNorm(WIDTH, EPSILON)
        self.between = nn.Linear(WIDTH, BETWEEN)
        self.output = nn.Linear(BETWEEN, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        query, key, value = (part(hidden).view(batch, length, HEADS, -1).transpose(1, 2)
                             for part in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(query, key, value, dropout_p=DROPOUT if self.training else 0.0)
        attended = self.attended(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        hidden = self.attended_norm(hidden + self.dropout(attended))
        return self.output_norm(hidden + self.dropout(self.output(functional.gelu(self.between(hidden)))))


class Encoder(nn.Module):
    """(batch, length, 768) to the same."""

    def __init__(self, layers=12):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden
