import cProfile, pstats, resource, time
from ...proof.corpus import solution
def test_p(judged):
    judged(solution(), "1,2")
    a=resource.getrusage(resource.RUSAGE_SELF); c=resource.getrusage(resource.RUSAGE_CHILDREN); t=time.time()
    p=cProfile.Profile(); p.enable()
    d=judged(solution(), "1,2")
    p.disable()
    b=resource.getrusage(resource.RUSAGE_SELF); e=resource.getrusage(resource.RUSAGE_CHILDREN)
    print("wall",time.time()-t,"self", b.ru_utime+b.ru_stime-a.ru_utime-a.ru_stime,"children",e.ru_utime+e.ru_stime-c.ru_utime-c.ru_stime)
    print([t.seconds for t in d.results.tests])
    pstats.Stats(p).sort_stats("cumtime").print_stats(30)
    assert 0
