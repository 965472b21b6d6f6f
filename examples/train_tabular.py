"""Train on a table with embeddings: scikit-learn's breast cancer data, each column in 64 bins, of which a batch touches few.

    python examples/train_tabular.py                                  # alone
    hocket run -n 4 examples/train_tabular.py                         # only the touched rows of embeddings travel

Only the import and the line with `distribute` are for Hocket. Gradients of embeddings are sparse; each rank has rows of its own,
which all ranks gather. Needs, in a clone: pip install '.[demo]'.
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import hocket.torch as hk

EPOCHS, BATCH, BINS, WIDTH = 30, 16, 64, 8

table = load_breast_cancer()
columns = torch.tensor(table.data, dtype=torch.float32)
order = torch.randperm(len(columns), generator=torch.Generator().manual_seed(0))
train, held_out = order[:450], order[450:]
edges = columns[train].quantile(torch.linspace(0, 1, BINS + 1)[1:-1], dim=0).T.contiguous()
bins = torch.searchsorted(edges, columns.T.contiguous()).T  # (samples, columns), of 0 to 63
places = bins + torch.arange(columns.shape[1]) * BINS  # each column has rows of its own
labels = torch.tensor(table.target, dtype=torch.float32)

torch.manual_seed(0)
model = nn.Sequential(
    nn.EmbeddingBag(columns.shape[1] * BINS, WIDTH, mode="mean", sparse=True),
    nn.Linear(WIDTH, 32),
    nn.ReLU(),
    nn.Linear(32, 1),
)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
model, optimizer = hk.distribute(model, optimizer)

data = torch.utils.data.TensorDataset(places[train], labels[train])
for _ in hk.epochs(model, EPOCHS):
    for place, label in hk.batches(model, data, BATCH):
        loss = nn.functional.binary_cross_entropy_with_logits(model(place).squeeze(1), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if hk.rank(model) == 0:
    with torch.no_grad():
        right = ((model(places[held_out]).squeeze(1) > 0) == labels[held_out].bool()).float().mean()
    print(f"{EPOCHS} epochs: accuracy {right.item():.3f}")
