"""Storage modes behind one interface (`base.Storage`).

base       the interface and its errors
modes      which of these a configuration means
commit     group commit: one write and one sync for all that waits
recent     appends in memory
memory     mode `memory`
filestore  modes `file-durable` and `file-fast`: what happens when
           (journal, catalog, segments: its files; checkpoints: the background; recovery: the start)
format     their bytes, pure
files      their file operations
acid       mode `acid`: LMDB shards
reclaim    deletions, held off while a backup runs
inspect    `weir fsck` and `weir dump`
backup     `weir backup` and `weir restore` (copies: a backup's files and manifest)
"""
