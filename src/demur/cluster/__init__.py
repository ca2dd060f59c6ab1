"""The same jobs on a Ray cluster: ``demur.score(..., cluster=...)`` and ``demur score --cluster``.

    settings        `Cluster`: where a job runs, with how many workers, and how it is split
    connection      joins a cluster, or starts one on this machine
    jobs            the jobs: scores as one process returns them; tables of Parquet
    dataset_scores  `score_dataset`: a Dataset in, a Dataset out
    score_files     `demur score --cluster`: predictions in files
    member_parts    by inputs or by members: chosen by memory
    by_input        workers with all members, which take block after block
    by_member       workers with some of the members, and the tree in which their sums are merged
    blocks          batches that are done together, from any loader
    dataset_batches batches of a Dataset of Ray
    block_files     finished blocks in a folder
    pool            workers that may die, and work that is done again; deaths says why they did

Ray is imported only here, and only once a job runs. Without ``cluster=``, nothing of this is used.
"""

from demur.cluster.dataset_scores import score_dataset
from demur.cluster.settings import Cluster

__all__ = ["Cluster", "score_dataset"]
