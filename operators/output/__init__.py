"""Turn segments into rows and changelogs: sampling, summaries, bound checks, diffs."""
