"""Key-value store of a job: its ledger, server and client, and the frames and addresses that they speak through."""
