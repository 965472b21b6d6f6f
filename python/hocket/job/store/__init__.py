"""The job's key-value store: its ledger, server and client, and the frames and addresses that they speak through."""
