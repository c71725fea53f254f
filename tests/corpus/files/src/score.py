def init(): pass
def run(batch): return batch
