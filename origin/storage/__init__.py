"""Storage modes behind one interface (`base.Storage`).

base              the interface and its errors
modes             selects the storage for a configuration
commit            group commit: one write and one sync for all waiting appends
memory            mode `memory`
recent            appends in memory
reclaim           deletions, held off while a backup runs
blobs             the bytes of snapshots as files

Modes `file-durable` and `file-fast`:

filestore         the storage: room, staging, publishing, reading
datafolder        the files of a data directory, each kind with its owner
files             their file operations
format            records as bytes, pure (`protocol.stream` has the records)
journal           the shared journal: batches, and the watermark of what was acknowledged
journalfiles      which journal file takes the next batch
catalog           the states of all streams as of the last checkpoint
segments          the bytes of one stream, below the last checkpoint
stored            one stream: what its segment has, and what memory has
checkpoints       when a checkpoint is made, and of what
checkpointwriter  its background half
opening           prepares the files at startup
recovery          from files to streams: catalog first, then the journal

acid              mode `acid`: LMDB shards

cluster           mode `cluster`: a replicated journal, and objects below it

Commands:

inspect           `weir fsck` and `weir dump`
backup            `weir backup` and `weir restore`
copies            a backup's files and manifest

Tests are in tests/origin/storage/ and tests/crash/. test_modes.py covers base, modes, memory and
acid; test_filestore.py and test_trims.py cover stored, checkpoints, checkpointwriter and opening;
test_backup.py covers datafolder, reclaim and copies; tests/crash/test_damage.py covers journal,
recovery and inspect; tests/crash/test_disk_errors.py covers files.
"""
