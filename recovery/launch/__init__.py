"""Launch settings, judged before a job starts: what Trainer will make of a manifest, and what is wrong with it.

Pure: text and objects in, findings and settings out. The CLI (`recovery lint`, `recovery explain-launch`) and admission
ask the same functions, so that they give the same verdicts. Nothing of ours is imported here.
"""
